-- KEYS: those of the name. ARGV: the owner, its TTL, lock-delay and minimum hold, the note. Replies
-- {OK, token}, {MISMATCH}, the owner's tombstone, or what ask.lua replies: {HELD, 0, opens in, note, token, 0, closed}.
local TEN_YEARS = 315360000000 -- milliseconds
local lock, owner = KEYS[1], ARGV[1]
local ttl, delay, min = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local why = call('GET', KEYS[3])
if why then return {tonumber(why) or NOT_HELD} end
local r = read(KEYS[2])
local kind = call('TYPE', lock).ok
if kind == 'string' then
  local ours = now < r.expires and has(lock, r.owner)
  -- A key of another program may have no end, or one that is so late that it is no exact number.
  local opens_in = 1000 * math.min(math.max(0, call('PTTL', lock)), TEN_YEARS)
  return {HELD, 0, math.max(opens_in, closed), ours and r.note or '', ours and r.last or 0, 0, closed}
elseif kind == 'none' and closed ~= 0 then
  return {HELD, 0, closed, '', 0, 0, closed}
elseif kind ~= 'none' then
  return {MISMATCH}
end
local token = math.max(r.last + 1, now)
local us = math.max(ttl + delay, min)
call('SET', lock, owner, 'PX', text(millis(us)))
call('HSET', r.key, 't', text(token), 'o', owner, 'u', text(now + ttl), 'm', text(now + min), 'g', text(now),
  'd', text(delay), 'n', ARGV[5])
call('PEXPIRE', r.key, text(millis(us) + IDLE))
return {OK, token}
