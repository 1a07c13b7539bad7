-- The short form of ask.lua, for a request that does not queue and that idle.lua may grant. If
-- idle.lua has not granted it, this replies what ask.lua replies if one plain hold has the name; or
-- nil, if ask.lua has to decide.
if fields.err or not fields[3] or fields[5] then return false end
local owner, ttl, delay, note = string.match(fields[3], '^h:([^ ]*) (%d+) (%d+) [^ ]*  (.*)$')
if not owner or owner == string.match(ARGV[1], '^h:([^ ]*)') then return false end
local rest = fields[4] + ttl - now
if rest <= 0 then return false end
return {1, 0, math.max(rest + delay, closed), note, tonumber(fields[2]), 0, closed}
