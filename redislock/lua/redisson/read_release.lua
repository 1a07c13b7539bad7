-- Releases read holds. KEYS: those of each hold's name. ARGV for each: its owner; the command that publishes; what
-- the tombstone says, and for how long (0: none). Replies OK, NOT_HELD or BROKEN for each.
local replies = {}
write_when_full()
for i = 1, #ARGV / 4 do
  local gone = KEYS[4 * i]
  local there = release_reader(KEYS[4 * i - 3], KEYS[4 * i - 2], ARGV[4 * i - 3], ARGV[4 * i - 2], KEYS[4 * i - 1])
  replies[i] = there and OK or why(gone)
  tombstone(gone, tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i]))
end
return replies
