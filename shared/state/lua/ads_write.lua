-- Write groups of ads (all ads of one daemon and type), unless what is there is newer.
-- KEYS[1] expiry of groups  KEYS[2] dictionaries  KEYS[3...] the groups' hashes
-- ARGV[1] "number number ...": the dictionaries that ads may be compressed with; one that is not there is an error.
-- ARGV for each group then: member of KEYS[1], when it expires (s), start time, sequence, content, heard (s),
--   base (content that the change stands on; '' replaces the whole group), number of ads, name, packed ad ...,
--   number of names gone, name ...
-- Field '' of a hash holds "start sequence content heard". A daemon silent for a minute whose start time is older has
-- had its clock set back, and is believed (as shared/daemon/ad_table.py does); so is one heard in the future.
-- Returns the numbers (from 1) of groups that lack the base: write those whole.
local CLOCK_STEP = 60
local whole = {}
local at = 2

if #ARGV[1] > 10000 then return redis.error_reply('TOOMANY dictionaries') end
for number in string.gmatch(ARGV[1], '%d+') do
  if redis.call('HEXISTS', KEYS[2], number) == 0 then
    return redis.error_reply('NODICTIONARY ' .. number)
  end
end

local last = #ARGV
local function take()
  if at > last then error('ARGV ends early') end -- a count that is not true must not keep the server busy
  at = at + 1
  return ARGV[at - 1]
end

for number = 1, #KEYS - 2 do
  local key = KEYS[number + 2]
  local member, expires = take(), take()
  local start, sequence, content, heard = tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take())
  local base = tonumber(take())
  local sets, gone = {}, {}
  for _ = 1, tonumber(take()) * 2 do sets[#sets + 1] = take() end
  for _ = 1, tonumber(take()) do gone[#gone + 1] = take() end

  local meta = redis.call('HGET', key, '') or ''
  local s, q, c, h = string.match(meta, '^(%S+) (%S+) (%S+) (%S+)$')
  s, q, c, h = tonumber(s or -1), tonumber(q or -1), tonumber(c or -1), tonumber(h or 0)
  local newer
  if start == s then
    newer = sequence > q or (content > c)
  else
    newer = start > s or math.abs(heard - h) >= CLOCK_STEP
  end
  if newer then
    if base and not (start == s and c == base) then
      if not (start == s and c >= content) then whole[#whole + 1] = number end
      newer = false
    end
  end
  if newer then
    if not base then redis.call('DEL', key) end
    for first = 1, #gone, 500 do
      redis.call('HDEL', key, unpack(gone, first, math.min(first + 499, #gone)))
    end
    for first = 1, #sets, 500 do
      redis.call('HSET', key, unpack(sets, first, math.min(first + 499, #sets)))
    end
    redis.call('HSET', key, '', string.format('%d %d %d %.3f', start, sequence, content, math.max(heard, h)))
    redis.call('ZADD', KEYS[1], expires, member)
  end
end
return whole
