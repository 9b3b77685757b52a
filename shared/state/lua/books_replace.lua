-- Put restored books in force, or begin new ones, unless those that are there are as new.
-- KEYS[1] current epoch  KEYS[2] version of the books: "epoch count"  KEYS[3] submitters  KEYS[4] groups  KEYS[5] claims
--   KEYS[6], KEYS[7], KEYS[8] what books_stage put aside for these
-- ARGV[1] epoch of the writer  ARGV[2] version that is restored, or that must be exceeded: "epoch count"
--   ARGV[3] 1: what was put aside replaces what is there; 0: what is there stays, and only its version rises
-- Returns the version after it, which is above both. Whoever asks again finds that, and nothing is done.
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then
  return redis.error_reply('STALE epoch ' .. ARGV[1] .. ', ' .. current .. ' is active')
end
local there = redis.call('GET', KEYS[2])
local epoch, count = string.match(there or '', '^(%d+) (%d+)$')
epoch, count = tonumber(epoch or -1), tonumber(count or 0)
local base_epoch, base_count = string.match(ARGV[2], '^(%d+) (%d+)$')
base_epoch, base_count = tonumber(base_epoch), tonumber(base_count)
if epoch > base_epoch or (epoch == base_epoch and count >= base_count) then
  redis.call('DEL', KEYS[6], KEYS[7], KEYS[8])
  return there
end
if ARGV[3] == '1' then
  for place = 3, 5 do
    redis.call('DEL', KEYS[place])
    if redis.call('EXISTS', KEYS[place + 3]) == 1 then redis.call('RENAME', KEYS[place + 3], KEYS[place]) end
  end
end
local after = string.format('%.0f %.0f', math.max(tonumber(ARGV[1]), base_epoch), math.max(count, base_count) + 1)
-- Claims say of which version of the books they are: they are of this one, if they were of what it stands on.
local of, till = string.match(redis.call('HGET', KEYS[5], '') or '', '^(%d+ %d+) (.+)$')
if of == (ARGV[3] == '1' and ARGV[2] or there) then redis.call('HSET', KEYS[5], '', after .. ' ' .. till) end
redis.call('SET', KEYS[2], after)
return after
