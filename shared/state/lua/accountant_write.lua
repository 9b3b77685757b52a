-- Write accounting records, unless a newer negotiator is active, or the books went back in time.
-- KEYS[1] current epoch  KEYS[2] hash of records  KEYS[3] version of the books: "epoch count"
-- ARGV[1] epoch of the writer  ARGV[2] version of the books it stands on: "epoch count"
--   then pairs: submitter, packed record (empty: delete it)
-- Returns the version after it. A Redis that has less than the writer knows of has lost what was written: records that
-- did not change since would be missing, so the books must be restored first.
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then
  return redis.error_reply('STALE epoch ' .. ARGV[1] .. ', ' .. current .. ' is active')
end
local function version(text)
  local epoch, count = string.match(text or '', '^(%d+) (%d+)$')
  return tonumber(epoch or 0), tonumber(count or 0)
end
local epoch, count = version(redis.call('GET', KEYS[3]) or '')
local base_epoch, base_count = version(ARGV[2])
if epoch < base_epoch or (epoch == base_epoch and count < base_count) then
  return redis.error_reply('STALE books: version ' .. base_epoch .. '.' .. base_count .. ' was written, here is ' ..
    epoch .. '.' .. count)
end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[i])
  else
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
local after = string.format('%.0f %.0f', math.max(tonumber(ARGV[1]), epoch), count + 1)
redis.call('SET', KEYS[3], after)
return after
