-- Renews write holds, and those that were downgraded since. KEYS: those of each hold's name. ARGV for each: the
-- writer's field, its TTL. Replies OK, NOT_HELD or BROKEN for each.
local replies = {}
for i = 1, #ARGV / 2 do
  local lock, field, ttl = KEYS[4 * i - 3], ARGV[2 * i - 1], ARGV[2 * i]
  local reader = downgraded(field)
  if mode(lock) == 'write' and call('HEXISTS', lock, field) == 1 then
    extend(lock, tonumber(ttl))
    replies[i] = OK
  else
    replies[i] = reader and renew_reader(lock, KEYS[4 * i - 2], reader, ttl) and OK or why(KEYS[4 * i])
  end
end
return replies
