-- Releases holds of RLocks, however often their owners have them. KEYS: those of each hold's name. ARGV for
-- each: its owner; the command that publishes; what the tombstone says, and for how long (0: none). Replies
-- OK, NOT_HELD or BROKEN for each.
local replies = {}
write_when_full()
for i = 1, #ARGV / 4 do
  local lock, gone = KEYS[4 * i - 3], KEYS[4 * i]
  if call('TYPE', lock).ok == 'hash' and call('HDEL', lock, ARGV[4 * i - 3]) == 1 then
    if call('EXISTS', lock) == 0 then call(ARGV[4 * i - 2], KEYS[4 * i - 1], '0') end
    replies[i] = OK
  else
    replies[i] = why(gone)
  end
  tombstone(gone, tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i]))
end
return replies
