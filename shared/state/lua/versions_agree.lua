-- Agree on the versions of records before anything is read or written. One that is not written down is 1, as all were
-- before they were. Where one is later than what the caller knows, nothing is changed.
-- KEYS: the versions' keys
-- ARGV: the version that the caller writes, of each
-- Returns what is written down of those that are later, as "number of the key" and "version", one after the other
local later = {}
for i = 1, #KEYS do
  local said = redis.call('GET', KEYS[i]) or '1'
  local version = tonumber(said)
  if not version or version > tonumber(ARGV[i]) then
    later[#later + 1] = tostring(i)
    later[#later + 1] = said
  end
end
if #later == 0 then
  for i = 1, #KEYS do
    if tonumber(ARGV[i]) > tonumber(redis.call('GET', KEYS[i]) or '1') then
      redis.call('SET', KEYS[i], ARGV[i])
    end
  end
end
return later
