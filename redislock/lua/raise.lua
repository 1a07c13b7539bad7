-- KEYS: those of each hold's name. ARGV for each: its owner, and the token that its hold gets, whatever it
-- had before; 0: it keeps that. Renews the hold. Tokens that are given out from then on are higher than
-- all of them. Replies OK, NOT_HELD or BROKEN for each.
return each(#ARGV / 2, function(i)
  local r, owner, token = read(i), ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local h = held(r, owner)
  if not h then return tombstone(r, owner) or NOT_HELD end
  h.expires, h.claim = now + h.ttl, 0
  if token > 0 then
    h.token, h.block_end, r.last = token, token, math.max(r.last, token)
  end
  write(r)
  return OK
end)
