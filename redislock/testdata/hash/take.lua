-- The short form of ask.lua, for a request that does not queue and that idle.lua may grant. If
-- idle.lua has not granted it, this replies what ask.lua replies if one plain hold has the name; or
-- nil, if ask.lua has to decide.
if not fields[2] then return false end
fields = redis.call('HGETALL', KEYS[1])
local last, field, text = fields[2], fields[3], fields[4]
if field == 'last' then last, field, text = fields[4], fields[1], fields[2] end
if fields[5] or string.sub(field, 1, 2) ~= 'h:' or field == ARGV[1] then return false end
local expires, ttl, delay, note = string.match(text, '^(%d+) (%d+) (%d+) [^ ]* (.*)$')
local token = tonumber(string.sub(last, 1, 16))
if expires == '0' then expires = token + ttl end
if now >= tonumber(expires) then return false end
return {1, 0, expires - now + delay, note, token}
