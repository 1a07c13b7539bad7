-- Renews holds of RLocks. KEYS: those of each hold's name. ARGV for each: its owner, its TTL. Replies OK,
-- NOT_HELD or BROKEN for each.
local replies = {}
for i = 1, #ARGV / 2 do
  local lock, owner = KEYS[4 * i - 3], ARGV[2 * i - 1]
  if call('TYPE', lock).ok == 'hash' and call('HEXISTS', lock, owner) == 1 then
    call('PEXPIRE', lock, ARGV[2 * i])
    replies[i] = OK
  else
    replies[i] = why(KEYS[4 * i])
  end
end
return replies
