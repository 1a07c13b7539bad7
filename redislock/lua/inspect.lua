-- KEYS: those of the name. Replies {slots, closed for, holders, waiters}: of a holder its owner,
-- mode, permits, note, token, age and rest; of a waiter its owner, mode, permits, note and age.
if fields.err then return {err = fields.err} end
local r = read(1, fields)
drop_heads(r)
local slots, closed, holders, waiters = 0, 0, {}, {}
for _, h in ipairs(r.holds) do
  slots = h.slots
  if h.owner == '' then
    closed = math.max(closed, h.expires - now)
  else
    table.insert(holders, {h.owner, h.mode, h.permits, h.note, h.token, now - h.taken, h.expires - now})
  end
end
for _, owner in ipairs(call('ZRANGE', r.queue, '0', '-1')) do
  local p = place(r, owner)
  if p then
    slots = p.slots
    table.insert(waiters, {p.owner, p.mode, p.permits, p.note, now - p.joined})
  end
end
return {slots, closed, holders, waiters}
