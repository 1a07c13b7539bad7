-- Renews read holds. KEYS: those of each hold's name. ARGV for each: its owner, its TTL. Replies OK,
-- NOT_HELD or BROKEN for each.
local replies = {}
for i = 1, #ARGV / 2 do
  local there = renew_reader(KEYS[4 * i - 3], KEYS[4 * i - 2], ARGV[2 * i - 1], ARGV[2 * i])
  replies[i] = there and OK or why(KEYS[4 * i])
end
return replies
