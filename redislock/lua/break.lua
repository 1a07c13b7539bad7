-- KEYS: record, and what the keys of its farewells begin with. ARGV: the token that
-- the operator saw (P4). Replies OK or NOT_HELD.
go_on()
local r = load(KEYS[1])
for i, h in ipairs(r[HOLDS]) do
  if h[OWNER] ~= '' and h[TOKEN] == tonumber(ARGV[1]) then
    table.remove(r[HOLDS], i)
    say(r, KEYS[2] .. h[OWNER], BROKEN, h[EXPIRES] - now)
    settle(r)
    commit(KEYS[1], r)
    tell(KEYS[1], h[CLIENT], 'b ' .. h[OWNER])
    return OK
  end
end
return NOT_HELD
