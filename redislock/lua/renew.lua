-- KEYS: those of each hold's name. ARGV for each: its owner; its token if that was handed over inside the client, or
-- is to be raised, else 0; 1 if it is to be raised. A token that is raised is what the hold gets, whatever it had before,
-- and tokens that are given out from then on are higher. An expired hold is not revived (P1). Replies OK, NOT_HELD or
-- BROKEN for each.
return each((#ARGV - 2) / 3, function(i)
  local r, owner, token = read(i), ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1])
  local h = held(r, owner)
  if not h then return tombstone(r, owner) or NOT_HELD end
  h.token, h.expires, h.claim = math.max(h.token, token), now + h.ttl, 0
  if ARGV[3 * i] == '1' and token > 0 then
    h.token, h.block_end, r.last = token, token, math.max(r.last, token)
  end
  write(r)
  return OK
end)
