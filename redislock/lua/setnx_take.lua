-- KEYS: those of the name. ARGV: the owner, its TTL, lock-delay and minimum hold, the note. Replies
-- {OK, token}, {HELD, for how many milliseconds, token, note}, {MISMATCH}, or the owner's tombstone.
local lock, owner = KEYS[1], ARGV[1]
local ttl, delay, min = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local why = call('GET', KEYS[3])
if why then return {tonumber(why) or NOT_HELD} end
local r = read(KEYS[2])
local kind = call('TYPE', lock).ok
if kind == 'string' then
  local ours = now < r.expires and has(lock, r.owner)
  return {HELD, call('PTTL', lock), ours and r.last or 0, ours and r.note or ''}
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
