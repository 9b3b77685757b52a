-- How long ago accounting records were written, by this Redis's clock, whoever's the writer went by.
-- KEYS[1] when that was: "epoch count ms", as accountant_write notes it
-- Returns {version of the books: "epoch count", ms since then, ms since 1970}; {} where nobody noted it.
local version, at = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+ %d+) (%d+)$')
if not version then return {} end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
return {version, string.format('%.0f', now - tonumber(at)), string.format('%.0f', now)}
