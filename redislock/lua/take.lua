-- The fast path of ask.lua: an exclusive hold, of at most five minutes with its
-- lock-delay, on a name that nobody uses or that one plain hold keeps. It is a
-- script of its own, and sparing with calls, arguments and numbers, because it is
-- run for each lock that nobody else wants.
-- KEYS: record. ARGV: the field of the owner's hold, and its text (see record.lua).
-- Replies the token; what ask.lua replies if the name is held; or nil, if ask.lua
-- has to decide.
local fields = redis.call('HVALS', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not fields[2] then
  local token, last = string.format('%016d', now), fields[1]
  if last then
    if token <= last then return false end -- the clock has gone back
    last = string.sub(last, 17)
    -- PX is long enough for five minutes, and ten more of being idle?
    if last - now >= 900000000 then
      redis.call('HSET', KEYS[1], 'last', token .. last, ARGV[1], ARGV[2])
      return now
    end
  end
  redis.call('HSET', KEYS[1], 'last', token .. string.format('%d', now + 1500000000), ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], '1500000')
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
