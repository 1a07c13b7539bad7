-- KEYS: record and tombstone of each grant. ARGV for each: its owner, the last token that it
-- used (0: unknown), its minimum hold, and for how long requests of the owner are refused from now
-- on (0: no request can be under way). Replies OK, NOT_HELD or BROKEN for each. The next in the queue
-- gets the name in the same step.
return each(#ARGV / 4, function(i)
  local key, tomb = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, used = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2])
  local min, refuse = tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i])
  local r = read(key)
  local h = find(r[HOLDS], owner)
  local reply = h and OK or tombstone(r, tomb) or NOT_HELD
  if h then give_back(r, h, used) end
  -- A clock that was set back since must not close the name for longer than that.
  local rest = h and min - math.max(0, now - h[TAKEN]) or 0
  if rest > 0 then
    h[OWNER], h[CLIENT], h[EXPIRES], h[DELAY], h[MIN] = '', '', now + rest, 0, min
  elseif h then
    remove(r[HOLDS], owner)
  end
  local p = remove(r[QUEUE], owner)
  if refuse > 0 then leave_tombstone(r, tomb, NOT_HELD, refuse) end
  if h or p or refuse > 0 then
    settle(r)
    commit(key, r)
  end
  return reply
end)
