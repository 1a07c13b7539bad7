-- KEYS: those of each hold's name. ARGV for each: its owner, and its token if the hold was handed over
-- inside the client, else 0. An expired hold is not revived (P1). Replies OK, NOT_HELD or BROKEN for
-- each.
return each(#ARGV / 2, function(i)
  local r, owner = read(i), ARGV[2 * i - 1]
  local h = held(r, owner)
  if not h then return tombstone(r, owner) or NOT_HELD end
  h.token, h.expires, h.claim = math.max(h.token, tonumber(ARGV[2 * i])), now + h.ttl, 0
  write(r)
  return OK
end)
