-- Renews permits. KEYS: those of each hold's name. ARGV for each: its ids, its TTL. Replies OK,
-- NOT_HELD or BROKEN for each. Permits that have ended are not revived, though nobody may have
-- taken them yet.
local replies, now = {}, wall()
write_when_full()
for i = 1, #ARGV / 2 do
  local lock, taken = KEYS[4 * i - 3], KEYS[4 * i - 2]
  local list = ids(ARGV[2 * i - 1])
  if free(lock, taken) and has(taken, list, now) then
    keep(taken, list, now + tonumber(ARGV[2 * i]))
    replies[i] = OK
  else
    replies[i] = why(KEYS[4 * i])
  end
end
return replies
