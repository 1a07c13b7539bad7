-- KEYS: those of each grant's name. ARGV for each: its owner, the last token that it used (0:
-- unknown), its minimum hold, and for how long requests of the owner are refused from now on (0: no
-- request can be under way). Replies OK, NOT_HELD or BROKEN for each. The next in the queue gets the
-- name in the same step.
return each((#ARGV - 2) / 4, function(i)
  local owner, used = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2])
  local min, refuse = tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i])
  local r = read(i)
  local h, at = held(r, owner)
  local reply = h and OK or tombstone(r, owner) or NOT_HELD
  if h then give_back(r, h, used) end
  -- A clock that was set back since must not close the name for longer than that.
  local rest = h and min - math.max(0, now - h.taken) or 0
  if rest > 0 then
    h.owner, h.client, h.expires, h.delay, h.min = '', '', now + rest, 0, min
  elseif h then
    table.remove(r.holds, at)
  end
  local left = not h and leave(r, owner)
  if refuse > 0 then leave_tombstone(r, owner, NOT_HELD, refuse) end
  if h or left or refuse > 0 then
    settle(r)
    commit(r)
  end
  return reply
end)
