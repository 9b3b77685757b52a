-- Give the lead up, so that the next one need not wait for the lease to end. The note stays. Harmless for who does not
-- have it.
-- KEYS[1] the lead
-- ARGV: name, life
-- Returns 1 if it was given up.
local lead = redis.call('HMGET', KEYS[1], 'owner', 'life')
if lead[1] == ARGV[1] and lead[2] == ARGV[2] then
  redis.call('HDEL', KEYS[1], 'owner', 'life', 'until')
  return 1
end
return 0
