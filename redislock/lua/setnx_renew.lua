-- KEYS: those of each hold's name. ARGV for each: its owner and its TTL. An expired hold is not revived
-- (P1). Replies OK, NOT_HELD or BROKEN for each.
local replies = {}
write_when_full()
for i = 1, #ARGV / 2 do
  local lock, owner, ttl = KEYS[3 * i - 2], ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local r = read(KEYS[3 * i - 1])
  if held(lock, r, owner) then
    call('HSET', r.key, 'u', text(now + ttl))
    keep(lock, r, math.max(ttl + r.delay, r.min - now))
    replies[i] = OK
  else
    replies[i] = tonumber(call('GET', KEYS[3 * i]) or NOT_HELD) or NOT_HELD
  end
end
return replies
