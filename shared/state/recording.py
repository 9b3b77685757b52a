"""How a script runs in the embedded store: its text inside a frame that notes every write, so that what it
did (not what it was asked) can be kept and done again, as Redis replicates the effects of scripts."""

from __future__ import annotations

from functools import cache

from shared.state.scripts import script

#: Commands that change something, among those the pool's scripts may use.
WRITES = frozenset(
    {
        *("SET", "SETNX", "SETEX", "PSETEX", "DEL", "UNLINK", "GETDEL", "RENAME"),
        *("INCR", "INCRBY", "DECR", "DECRBY", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST"),
        *("HSET", "HMSET", "HSETNX", "HDEL", "HINCRBY", "HINCRBYFLOAT"),
        *("ZADD", "ZINCRBY", "ZREM", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"),
        *("SADD", "SREM", "RPUSH", "LPUSH", "LPOP", "RPOP", "LREM", "LTRIM"),
    }
)

# The last argument is the time, so that scripts see the store's clock; the script finds ARGV as it was
# given. Numbers are noted with all their digits, as Redis passes them on.
_FRAME = """
local __now = table.remove(ARGV)
local __writes = {%s}
local __log = {}
local __real = redis
local function __note(...)
  local command = {...}
  for i = 1, #command do
    if type(command[i]) == 'number' then command[i] = string.format('%%.17g', command[i]) end
  end
  __log[#__log + 1] = command
end
local function __through(call, name, ...)
  local upper = string.upper(name)
  if upper == 'TIME' then
    return {string.sub(__now, 1, -7), string.sub(__now, -6)}
  end
  local reply = call(name, ...)
  if __writes[upper] then __note(name, ...) end
  return reply
end
local redis = setmetatable({
  call = function(...) return __through(__real.call, ...) end,
  pcall = function(...) return __through(__real.pcall, ...) end,
}, {__index = __real})
local function __script()
%s
end
local __ok, __reply = pcall(__script)
if not __ok then
  return {'failed', tostring(__reply), __log}
end
if type(__reply) == 'table' and __reply.err then
  return {'failed', __reply.err, __log}
end
if __reply == nil then __reply = false end
return {'done', __reply, __log}
"""


@cache
def recorded(name: str) -> str:
    """The text of a script in its frame. It takes the time (microseconds since 1970) as one more argument
    and answers {"done", reply, writes} or {"failed", message, writes}."""
    return _FRAME % (", ".join(f"{word} = 1" for word in sorted(WRITES)), script(name).text)


def absolute(command: list[bytes], now_ms: int) -> list[bytes]:
    """A write as it must be kept: lifetimes become points in time, which mean the same whenever it is done
    again."""
    name = command[0].upper()
    if name in (b"EXPIRE", b"PEXPIRE"):
        return [b"PEXPIREAT", command[1], _at(command[2], name == b"EXPIRE", now_ms), *command[3:]]
    if name in (b"SETEX", b"PSETEX"):
        return [b"SET", command[1], command[3], b"PXAT", _at(command[2], name == b"SETEX", now_ms)]
    if name == b"SET":
        for place, word in enumerate(command[3:], start=3):
            if word.upper() in (b"EX", b"PX"):
                at = _at(command[place + 1], word.upper() == b"EX", now_ms)
                # What was asked about the key's former state was answered when it was written.
                return [*command[:3], b"PXAT", at]
        return [word for place, word in enumerate(command) if place < 3 or word.upper() == b"KEEPTTL"]
    return command


def _at(amount: bytes, seconds: bool, now_ms: int) -> bytes:
    return str(now_ms + int(amount) * (1000 if seconds else 1)).encode()
