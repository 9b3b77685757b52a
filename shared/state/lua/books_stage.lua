-- Put records of books that are to be restored aside, a part at a time; books_replace puts them in force.
-- KEYS[1] current epoch  KEYS[2] hash for the records
-- ARGV[1] epoch of the writer  ARGV[2] 1 for the first part (what was there goes), else 0
--   then pairs: submitter, packed record
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then
  return redis.error_reply('STALE epoch ' .. ARGV[1] .. ', ' .. current .. ' is active')
end
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
for first = 3, #ARGV, 1000 do
  redis.call('HSET', KEYS[2], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return #ARGV
