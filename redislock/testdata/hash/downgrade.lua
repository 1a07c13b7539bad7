-- KEYS: record, tombstone of the owner. ARGV: owner. Makes its hold a shared one with
-- a fresh TTL, and lets in the readers that wait first. Replies {OK, token}, or
-- {why not}.
local r = read(KEYS[1])
local h = find(r[HOLDS], ARGV[1])
if not h then return {tombstone(r, KEYS[2]) or NOT_HELD} end
h[MODE], h[EXPIRES], h[CLAIM] = SHARED, now + h[TTL], 0
settle(r)
commit(KEYS[1], r)
return {OK, h[TOKEN]}
