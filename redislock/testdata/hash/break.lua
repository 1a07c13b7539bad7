-- KEYS: record, and the prefix of the keys of its tombstones. ARGV: the token that
-- the operator saw (P4). Replies OK or NOT_HELD.
write_when_full()
local r = read(KEYS[1])
for i, h in ipairs(r[HOLDS]) do
  if h[OWNER] ~= '' and h[TOKEN] == tonumber(ARGV[1]) then
    table.remove(r[HOLDS], i)
    leave_tombstone(r, KEYS[2] .. h[OWNER], BROKEN, h[EXPIRES] - now)
    settle(r)
    commit(KEYS[1], r)
    publish(KEYS[1], h[CLIENT], 'b ' .. h[OWNER])
    return OK
  end
end
return NOT_HELD
