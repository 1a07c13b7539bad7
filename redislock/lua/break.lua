-- KEYS: those of the name. ARGV: the token that the operator saw (P4). Replies OK or NOT_HELD.
write_when_full()
local r = read(1)
for i, h in ipairs(r.holds) do
  if h.owner ~= '' and h.token == tonumber(ARGV[1]) then
    table.remove(r.holds, i)
    leave_tombstone(r, h.owner, BROKEN, h.expires - now)
    settle(r)
    commit(r)
    publish(r, h.client, 'b ' .. h.owner)
    return OK
  end
end
return NOT_HELD
