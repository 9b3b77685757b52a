-- Write accounting records, unless a newer negotiator is active, or the books went back in time.
-- KEYS[1] current epoch  KEYS[2] version of the books: "epoch count"  KEYS[3] submitters  KEYS[4] groups  KEYS[5] claims
--   KEYS[6] claims that books_stage put aside  KEYS[7] when that was: "epoch count ms", this Redis's clock
-- ARGV[1] epoch of the writer  ARGV[2] version of the books it stands on: "epoch count"
--   ARGV[3] until when claims that go on are charged; empty: nothing here has to do with claims
--   ARGV[4] 1: what was put aside takes the place of the claims that are there, before all else; whoever asks again
--   finds nothing aside, and that is right
--   ARGV[5] how many of the arguments that follow are of submitters, ARGV[6] how many of groups; all others are of claims.
--   Each of these has many rows, one after the other: "<bytes of the name> <bytes of the row> <name><row>"; an empty row:
--   delete it
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
local there = redis.call('GET', KEYS[2]) or ''
local epoch, count = version(there)
local base_epoch, base_count = version(ARGV[2])
if epoch < base_epoch or (epoch == base_epoch and count < base_count) then
  return redis.error_reply('STALE books: version ' .. base_epoch .. '.' .. base_count .. ' was written, here is ' ..
    epoch .. '.' .. count)
end
local after = string.format('%.0f %.0f', math.max(tonumber(ARGV[1]), epoch), count + 1)

local function write(key, first, last)
  local set, gone = {}, {}
  for i = first, last do
    local text, at = ARGV[i], 1
    while at <= #text do
      local _, before, name, row = string.find(text, '^(%d+) (%d+) ', at)
      name, row = tonumber(name), tonumber(row)
      if row == 0 then
        gone[#gone + 1] = string.sub(text, before + 1, before + name)
      else
        set[#set + 1] = string.sub(text, before + 1, before + name)
        set[#set + 1] = string.sub(text, before + name + 1, before + name + row)
      end
      at = before + name + row + 1
    end
  end
  for i = 1, #gone, 1000 do redis.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  for i = 1, #set, 1000 do redis.call('HSET', key, unpack(set, i, math.min(i + 999, #set))) end
end
local groups = 7 + tonumber(ARGV[5])
local claims = groups + tonumber(ARGV[6])
if ARGV[4] == '1' and redis.call('EXISTS', KEYS[6]) == 1 then redis.call('RENAME', KEYS[6], KEYS[5]) end
write(KEYS[3], 7, groups - 1)
write(KEYS[4], groups, claims - 1)
write(KEYS[5], claims, #ARGV)

local till = ARGV[3]
local at
if till ~= '' then
  local t = redis.call('TIME')
  at = string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
else
  local noted
  noted, at = string.match(redis.call('GET', KEYS[7]) or '', '^(%d+ %d+) (%d+)$')
  if noted ~= there then at = nil end
  local of, was = string.match(redis.call('HGET', KEYS[5], '') or '', '^(%d+ %d+) (.+)$')
  if of == there then till = was end
end
if till ~= '' then redis.call('HSET', KEYS[5], '', after .. ' ' .. till) end
if at then redis.call('SET', KEYS[7], after .. ' ' .. at) end
redis.call('SET', KEYS[2], after)
return after
