-- Say that this HAD is there, and take or renew the lead if it wants it and may have it.
-- KEYS[1] lease  KEYS[2] highest epoch ever given  KEYS[3] presence of HADs  KEYS[4] version of the accountant's books
-- ARGV: name, life (unique for each start of a HAD), wants the lead (1 or 0), length of the lease (ms),
--   highest epoch this HAD has ever heard of, whether its negotiator answers (1 or 0),
--   least version of the books with which it would lead ("epoch count"; '': any),
--   newest version it could restore ("epoch count"), whether it is held back (1 or 0), whether it has asked its
--   negotiator for that version since it found books missing here (1 or 0), which entry of HAD_LIST it is ('': none)
-- Whoever wins gets an epoch above every one before, also when this Redis lost its last writes and another HAD
-- remembers them. A HAD started again under its own name need not wait for its former life's lease to end.
-- Returns {now (ms), owner, owner's life, epoch, until (ms), highest epoch, version of the books ('': there are none),
-- name, "seen (ms) answers epoch count held-back asked life entry", ...}; owner is '' when nobody leads.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local name, life, wants = ARGV[1], ARGV[2], ARGV[3] == '1'
local lease = redis.call('HMGET', KEYS[1], 'owner', 'life', 'epoch', 'until')
local owner, held, epoch, till = lease[1] or '', lease[2] or '', tonumber(lease[3] or 0), tonumber(lease[4] or 0)
local highest = math.max(tonumber(redis.call('GET', KEYS[2]) or 0), tonumber(ARGV[5]), epoch)

redis.call('HSET', KEYS[3], name,
  string.format('%.0f %s %s %s %s %s', now, ARGV[6], ARGV[8], ARGV[9], ARGV[10], life)
  .. ((ARGV[11] or '') ~= '' and ' ' .. ARGV[11] or ''))

local books = redis.call('GET', KEYS[4]) or ''
if wants and ARGV[7] ~= '' then
  local e, c = string.match(books, '^(%d+) (%d+)$')
  local least_e, least_c = string.match(ARGV[7], '^(%d+) (%d+)$')
  e, c, least_e, least_c = tonumber(e or -1), tonumber(c or 0), tonumber(least_e), tonumber(least_c)
  wants = e > least_e or (e == least_e and c >= least_c)
end

local mine = owner == name and held == life and epoch == highest
-- A lease that ends in the far future was given before the clock was set back: nobody renews it any more.
local over = owner == '' or till <= now or till > now + 10 * tonumber(ARGV[4])
if wants and (mine or owner == name or over) then
  if not mine then
    highest = highest + 1
    epoch = highest
    redis.call('SET', KEYS[2], string.format('%.0f', epoch))
  end
  owner, held, till = name, life, now + tonumber(ARGV[4])
  redis.call('HSET', KEYS[1], 'owner', owner, 'life', held, 'epoch', string.format('%.0f', epoch),
    'until', string.format('%.0f', till))
elseif over then
  owner, held = '', ''
end

local answer = {now, owner, held, epoch, till, highest, books}
for _, part in ipairs(redis.call('HGETALL', KEYS[3])) do answer[#answer + 1] = part end
return answer
