-- Takes the write half of an RReadWriteLock. KEYS: those of the name. ARGV: the writer's field, the TTL.
-- Replies as lock_take.lua.
local lock, field, ttl = KEYS[1], ARGV[1], ARGV[2]
if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local m = mode(lock)
if m == nil then
  if queued(KEYS[5]) then return {MISMATCH} end
  call('HSET', lock, 'mode', 'write', field, '1')
elseif m == false then
  return {MISMATCH}
elseif m ~= 'write' or call('HEXISTS', lock, field) == 0 then
  return held(lock)
end
call('PEXPIRE', lock, ttl)
return {OK}
