-- KEYS: those of the name. ARGV: owner, the new note of its hold. Replies OK, NOT_HELD or BROKEN.
local r = read(1)
local h = held(r, ARGV[1])
if not h then return tombstone(r, ARGV[1]) or NOT_HELD end
h.note = ARGV[2]
write(r)
return OK
