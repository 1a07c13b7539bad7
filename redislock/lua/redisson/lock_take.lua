-- Takes a hold of an RLock. KEYS: those of the name. ARGV: the owner, the TTL. Replies {OK}, {HELD, for how much
-- longer}, {MISMATCH}, or the owner's tombstone.
local lock, owner, ttl = KEYS[1], ARGV[1], ARGV[2]
if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local kind = call('TYPE', lock).ok
if kind ~= 'hash' or call('HEXISTS', lock, owner) == 0 then
  if kind ~= 'none' and (kind ~= 'hash' or call('HEXISTS', lock, 'mode') == 1) or queued(KEYS[5]) then return {MISMATCH} end
  if kind == 'hash' then return held(lock) end
  call('HSET', lock, owner, '1')
end
call('PEXPIRE', lock, ttl) -- also of a hold whose reply was lost: its owner asks again
return {OK}
