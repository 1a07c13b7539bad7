-- KEYS: record and tombstone of each hold. ARGV for each: its owner, and its token if the hold was
-- handed over inside the client, else 0. An expired hold is not revived (P1). Replies OK, NOT_HELD or BROKEN for each.
return each(#ARGV / 2, function(i)
  local key = KEYS[2 * i - 1]
  local r = read(key)
  local h = find(r[HOLDS], ARGV[2 * i - 1])
  if not h then return tombstone(r, KEYS[2 * i]) or NOT_HELD end
  h[TOKEN], h[EXPIRES], h[CLAIM] = math.max(h[TOKEN], tonumber(ARGV[2 * i])), now + h[TTL], 0
  write(key, r)
  return OK
end)
