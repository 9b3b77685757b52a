-- Write down what the next leader must know. Only the leader may: whoever lost the lead is refused.
-- KEYS[1] the lead
-- ARGV: name, life, note
local lead = redis.call('HMGET', KEYS[1], 'owner', 'life')
if lead[1] ~= ARGV[1] or lead[2] ~= ARGV[2] then
  return redis.error_reply('STALE lead of ' .. ARGV[1] .. ', ' .. (lead[1] or 'nobody') .. ' leads')
end
redis.call('HSET', KEYS[1], 'note', ARGV[3])
return 1
