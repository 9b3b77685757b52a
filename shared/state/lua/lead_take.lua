-- Take or renew the lead among daemons of one kind, of which only one may act.
-- KEYS[1] the lead
-- ARGV: name, life (unique for each start of a daemon), length of the lease (ms), whether this life asks for the first
--   time (1 or 0): a daemon started again under its own name need not wait for its former life's lease to end
-- Returns {whether it is ours (1 or 0), owner, note}: the note is what the last leader wrote down; '' for none.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local name, life, length = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lead = redis.call('HMGET', KEYS[1], 'owner', 'life', 'until', 'note')
local owner, held, till = lead[1] or '', lead[2] or '', tonumber(lead[3] or 0)
local mine = owner == name and held == life
-- A lease that ends in the far future was given before the clock was set back.
local over = owner == '' or till <= now or till > now + 10 * length
if mine or over or (owner == name and ARGV[4] == '1') then
  redis.call('HSET', KEYS[1], 'owner', name, 'life', life, 'until', string.format('%.0f', now + length))
  return {1, name, lead[4] or ''}
end
return {0, owner, lead[4] or ''}
