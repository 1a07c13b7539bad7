-- KEYS: record and farewell of each hold. ARGV: its owner. An expired hold is not
-- revived (P1). Replies OK, NOT_HELD or BROKEN for each.
return each(#ARGV, function(i)
  local key = KEYS[2 * i - 1]
  local r = load(key)
  local h = find(r[HOLDS], ARGV[i])
  if not h then return farewell(r, KEYS[2 * i]) or NOT_HELD end
  h[EXPIRES] = now + h[TTL]
  save(key, r)
  return OK
end)
