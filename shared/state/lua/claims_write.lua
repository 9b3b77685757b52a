-- Keep the claim ids of startds' slots, unless newer ones are there.
-- KEYS[1] hash of claims: daemon -> "start sequence written\n" and the packed map of slot name to claim id
-- ARGV for each daemon: daemon, start time, sequence, packed map
-- An older start time is believed where the last word is more than a minute away (see ads_write).
local CLOCK_STEP = 60
local now = tonumber(redis.call('TIME')[1])
local kept = 0
for at = 1, #ARGV, 4 do
  local daemon, start, sequence = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local s, q, w = string.match(redis.call('HGET', KEYS[1], daemon) or '', '^(%d+) (%d+) ?(%d*)\n')
  s, q, w = tonumber(s or -1), tonumber(q or -1), tonumber(w or now) or now
  if start > s or (start == s and sequence > q) or (start < s and math.abs(now - w) >= CLOCK_STEP) then
    redis.call('HSET', KEYS[1], daemon, string.format('%d %d %d\n', start, sequence, now) .. ARGV[at + 3])
    kept = kept + 1
  end
end
return kept
