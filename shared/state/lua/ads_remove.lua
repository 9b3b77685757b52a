-- Take expired ads out, unless their daemon was heard of since by somebody else.
-- KEYS[1] expiry of groups  KEYS[2...] the groups' hashes
-- ARGV for each group: member of KEYS[1], heard (s, as whoever finds them expired knows it),
--   when the rest expires (s; '' when nothing is left: the group goes), number of names, name ...
-- Returns the numbers (from 1) of groups that were heard of since: nothing of those was taken.
local alive = {}
local at = 1

local last = #ARGV
local function take()
  if at > last then error('ARGV ends early') end -- a count that is not true must not keep the server busy
  at = at + 1
  return ARGV[at - 1]
end

for number = 1, #KEYS - 1 do
  local key = KEYS[number + 1]
  local member, heard, rest = take(), tonumber(take()), take()
  local names = {}
  for _ = 1, tonumber(take()) do names[#names + 1] = take() end
  local h = string.match(redis.call('HGET', key, '') or '', ' (%S+)$')
  -- Kept to the millisecond, so a later one differs by more than half of that.
  if h and tonumber(h) > heard + 0.0006 then
    alive[#alive + 1] = number
  elseif rest == '' then
    redis.call('DEL', key)
    redis.call('ZREM', KEYS[1], member)
  else
    for first = 1, #names, 500 do
      redis.call('HDEL', key, unpack(names, first, math.min(first + 499, #names)))
    end
    redis.call('ZADD', KEYS[1], rest, member)
  end
end
return alive
