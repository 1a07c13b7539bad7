-- Breaks the hold of an RFencedLock if it has that token still. KEYS: those of the name. ARGV: its owner; the
-- command that publishes; for how long the tombstone lasts; the token. Replies OK, NOT_HELD or BROKEN.
local lock, gone = KEYS[1], KEYS[4]
if call('TYPE', lock).ok ~= 'hash' or call('GET', KEYS[2]) ~= ARGV[4] or call('HDEL', lock, ARGV[1]) == 0 then
  return why(gone)
end
if call('EXISTS', lock) == 0 then call(ARGV[2], KEYS[3], '0') end
tombstone(gone, BROKEN, tonumber(ARGV[3]))
return OK
