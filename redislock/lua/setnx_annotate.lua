-- KEYS: those of the name. ARGV: the owner and its note. Replies OK, NOT_HELD or BROKEN.
local r = read(KEYS[2])
if not held(KEYS[1], r, ARGV[1]) then return tonumber(call('GET', KEYS[3]) or NOT_HELD) or NOT_HELD end
call('HSET', r.key, 'n', ARGV[2])
return OK
