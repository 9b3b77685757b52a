-- Write accounting records, unless a newer negotiator is active.
-- KEYS[1] current epoch  KEYS[2] hash of records
-- ARGV[1] epoch of the writer  then pairs: submitter, packed record (empty: delete it)
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then
  return redis.error_reply('STALE epoch ' .. ARGV[1] .. ', ' .. current .. ' is active')
end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[i])
  else
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
return (#ARGV - 1) / 2
