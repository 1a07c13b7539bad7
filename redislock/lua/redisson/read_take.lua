-- Takes the read half of an RReadWriteLock. KEYS: those of the name. ARGV: the owner, the TTL. Replies as
-- lock_take.lua.
local lock, own, owner, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local m = mode(lock)
if m == false then return {MISMATCH} end
if m == 'write' then return held(lock) end
if m == nil then
  if queued(KEYS[5]) then return {MISMATCH} end
  call('HSET', lock, 'mode', 'read', owner, '1')
  call('PEXPIRE', lock, ttl)
else
  call('HSET', lock, owner, '1')
  extend(lock, tonumber(ttl))
end
call('SET', own, '1', 'PX', ttl)
return {OK}
