-- KEYS: those of the name. ARGV: owner. Makes its hold a shared one with a fresh TTL, and lets in the
-- readers that wait first. Replies {OK, token}, or {why not}.
write_when_full()
local r = read(1)
local h = held(r, ARGV[1])
if not h then return {tombstone(r, ARGV[1]) or NOT_HELD} end
h.mode, h.expires, h.claim = SHARED, now + h.ttl, 0
settle(r)
commit(r)
return {OK, h.token}
