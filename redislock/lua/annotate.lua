-- KEYS: record, tombstone of the owner. ARGV: owner, the new note of its hold. Replies
-- OK, NOT_HELD or BROKEN.
local r = read(KEYS[1])
local h = find(r[HOLDS], ARGV[1])
if not h then return tombstone(r, KEYS[2]) or NOT_HELD end
h[NOTE] = ARGV[2]
write(KEYS[1], r)
return OK
