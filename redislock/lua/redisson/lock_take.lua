-- Takes a hold of an RLock, or of an RFencedLock: then the second key is the counter of tokens, which has no end. KEYS:
-- those of the name. ARGV: the owner, the TTL. Replies {OK, token}, {HELD, for how much longer}, {MISMATCH}, or the
-- owner's tombstone.
local lock, counter, owner, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local fenced, token = counter ~= lock, 0
if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local kind, other = call('TYPE', lock).ok, fenced and call('TYPE', counter).ok or 'none'
if other ~= 'none' and other ~= 'string' then return {MISMATCH} end
if kind == 'hash' and call('HEXISTS', lock, owner) == 1 then -- the reply was lost: its owner asks again
  token = fenced and tonumber(call('GET', counter) or 0) or 0
else
  if kind ~= 'none' and (kind ~= 'hash' or call('HEXISTS', lock, 'mode') == 1) or queued(KEYS[5]) then return {MISMATCH} end
  if kind == 'hash' then return held(lock) end
  if fenced then token = call('INCR', counter) end
  call('HSET', lock, owner, '1')
end
call('PEXPIRE', lock, ttl)
return {OK, token}
