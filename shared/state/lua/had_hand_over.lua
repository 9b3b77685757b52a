-- Give the lead to another HAD, with no moment in which nobody has it: its lease begins as ours ends, under a new epoch.
-- KEYS[1] lease  KEYS[2] highest epoch ever given
-- ARGV: name, life, epoch of our lead, the other's name, the other's life, length of its lease (ms)
-- Returns the new epoch; 0 if the lead is not ours to give.
local lease = redis.call('HMGET', KEYS[1], 'owner', 'life', 'epoch')
local epoch = tonumber(lease[3] or 0)
local highest = math.max(tonumber(redis.call('GET', KEYS[2]) or 0), epoch)
if lease[1] ~= ARGV[1] or lease[2] ~= ARGV[2] or epoch ~= tonumber(ARGV[3]) or epoch ~= highest then return 0 end
local t = redis.call('TIME')
local till = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000) + tonumber(ARGV[6])
epoch = epoch + 1
redis.call('SET', KEYS[2], string.format('%.0f', epoch))
redis.call('HSET', KEYS[1], 'owner', ARGV[4], 'life', ARGV[5], 'epoch', string.format('%.0f', epoch),
  'until', string.format('%.0f', till))
return epoch
