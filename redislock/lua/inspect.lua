-- KEYS: record. Replies {slots, closed for, holders, waiters}: of a holder its owner,
-- mode, permits, note, token, age and rest; of a waiter its owner, mode, permits,
-- note and age.
local r = read(KEYS[1])
local slots, closed, holders, waiters = 0, 0, {}, {}
for _, h in ipairs(r[HOLDS]) do
  slots = h[SLOTS]
  if h[OWNER] == '' then
    closed = math.max(closed, h[EXPIRES] - now)
  else
    table.insert(holders, {h[OWNER], h[MODE], h[PERMITS], h[NOTE], h[TOKEN], now - h[TAKEN], h[EXPIRES] - now})
  end
end
for _, p in ipairs(r[QUEUE]) do
  slots = p[SLOTS]
  table.insert(waiters, {p[OWNER], p[MODE], p[PERMITS], p[NOTE], now - p[JOINED]})
end
return {slots, closed, holders, waiters}
