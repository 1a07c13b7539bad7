-- KEYS: those of the name. ARGV: the token that the operator saw (P4), and the owner that had it.
-- Replies OK or NOT_HELD.
write_when_full()
local r = read(KEYS[2])
if not held(KEYS[1], r, ARGV[2]) or r.last ~= tonumber(ARGV[1]) then return NOT_HELD end
call('SET', KEYS[3], text(BROKEN), 'PX', text(millis(r.expires - now) + 60000))
call('HSET', r.key, 'o', '', 'u', '0')
call('DEL', KEYS[1])
call('PEXPIRE', r.key, text(IDLE))
return OK
