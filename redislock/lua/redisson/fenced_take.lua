-- Takes a hold of an RFencedLock. KEYS: those of the name; the second is the counter of tokens, which has no
-- end. ARGV: the owner, the TTL. Replies {OK, token}, or as lock_take.lua.
local lock, counter, owner, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local kind, other = call('TYPE', lock).ok, call('TYPE', counter).ok
local token
if other ~= 'none' and other ~= 'string' then return {MISMATCH} end
if kind == 'hash' and call('HEXISTS', lock, owner) == 1 then
  token = tonumber(call('GET', counter) or 0)
else
  if kind ~= 'none' and (kind ~= 'hash' or call('HEXISTS', lock, 'mode') == 1) or queued(KEYS[5]) then return {MISMATCH} end
  if kind == 'hash' then return held(lock) end
  token = call('INCR', counter)
  call('HSET', lock, owner, '1')
end
call('PEXPIRE', lock, ttl)
return {OK, token}
