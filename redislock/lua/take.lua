-- The fast path of ask.lua: an exclusive hold on a name that nobody uses, or that
-- one plain hold keeps. It is a script of its own because every local variable,
-- argument and call of a longer one is paid for here too.
-- KEYS: record. ARGV: the field of the owner's hold, and its text (see record.lua).
-- Replies the token; what ask.lua replies if the name is held; or nil, if ask.lua
-- has to decide.
local fields = redis.call('HVALS', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not fields[2] then
  local token, kept = 0, 0
  if fields[1] then
    token, kept = tonumber(string.sub(fields[1], 1, 16)), tonumber(string.sub(fields[1], 17))
  end
  if now <= token then return false end -- the clock has gone back
  local ttl, delay = string.match(ARGV[2], '^0 (%d+) (%d+)')
  local ends = now + ttl + delay + 600000000
  if kept >= ends then
    redis.call('HSET', KEYS[1], 'last', string.format('%016d%d', now, kept), ARGV[1], ARGV[2])
  else
    redis.call('HSET', KEYS[1], 'last', string.format('%016d%d', now, ends + 600000000), ARGV[1], ARGV[2])
    redis.call('PEXPIRE', KEYS[1], string.format('%d', math.ceil((ends - now) / 1000) + 600000))
  end
  return now
end
-- One other hold?
fields = redis.call('HGETALL', KEYS[1])
local last, field, text = fields[2], fields[3], fields[4]
if field == 'last' then last, field, text = fields[4], fields[1], fields[2] end
if fields[5] or field == 'r' or field == ARGV[1] then return false end
local expires, ttl, delay, note = string.match(text, '^(%d+) (%d+) (%d+) [^ ]* (.*)$')
local token = tonumber(string.sub(last, 1, 16))
if expires == '0' then expires = token + ttl end
if now >= tonumber(expires) then return false end
return {1, 0, expires - now + delay, note, token}
