-- Give the lead up, so that the next HAD need not wait for the lease to end. Harmless for who does not have it.
-- KEYS[1] lease  KEYS[2] presence of HADs
-- ARGV: name, life, whether this HAD stops for good (1: it is no candidate any more)
-- Returns 1 if the lease was given up.
if ARGV[3] == '1' then redis.call('HDEL', KEYS[2], ARGV[1]) end
local lease = redis.call('HMGET', KEYS[1], 'owner', 'life')
if lease[1] == ARGV[1] and lease[2] == ARGV[2] then
  redis.call('DEL', KEYS[1])
  return 1
end
return 0
