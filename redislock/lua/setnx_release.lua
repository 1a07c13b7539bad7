-- KEYS: those of each grant's name. ARGV for each: its owner, its minimum hold, and for how long
-- requests of the owner are refused from now on (0: no request can be under way). Replies OK, NOT_HELD
-- or BROKEN for each.
local replies = {}
write_when_full()
for i = 1, #ARGV / 3 do
  local lock, gone, owner = KEYS[3 * i - 2], KEYS[3 * i], ARGV[3 * i - 2]
  local min, refuse = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local r = read(KEYS[3 * i - 1])
  if held(lock, r, owner) then
    -- A clock that was set back since must not close the name for longer than the minimum hold.
    local rest = min - math.max(0, now - r.taken)
    call('HSET', r.key, 'o', '', 'u', '0')
    if rest > 0 then
      call('SET', lock, CLOSED, 'PX', text(millis(rest)))
    else
      call('DEL', lock)
    end
    call('PEXPIRE', r.key, text(millis(math.max(rest, 0)) + IDLE))
    replies[i] = OK
  else
    replies[i] = tonumber(call('GET', gone) or NOT_HELD) or NOT_HELD
  end
  if refuse > 0 then call('SET', gone, text(NOT_HELD), 'PX', text(millis(refuse))) end
end
return replies
