-- Takes permits of an RPermitExpirableSemaphore, all or none. KEYS: those of the name. ARGV: the ids, the
-- TTL, how many slots the semaphore has, the command that publishes. Replies as lock_take.lua, and {MISMATCH, slots}.
-- Nobody has taken any of it yet if there is no string: then it is made.
local lock, taken, channel = KEYS[1], KEYS[2], KEYS[3]
local list, now, slots, publish = ids(ARGV[1]), wall(), tonumber(ARGV[3]), ARGV[4]
local ends = now + tonumber(ARGV[2])
if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local n = free(lock, taken)
if n == false then return {MISMATCH} end
local made = n == nil
if made then
  if queued(KEYS[5]) then return {MISMATCH} end
  call('DEL', taken) -- without the string they count for nobody
  call('SET', lock, text(slots))
elseif call('PTTL', lock) ~= -1 then
  return {MISMATCH} -- it ends, whatever holds there are
elseif has(taken, list, now) then
  keep(taken, list, ends)
  return {OK}
end
reap(lock, taken, now, publish, channel)
n = tonumber(call('GET', lock))
local inUse = n + call('ZCARD', taken)
if inUse ~= slots then return {MISMATCH, inUse} end
if n < #list then
  local first = call('ZRANGE', taken, '0', '0', 'WITHSCORES')
  return {HELD, first[2] and math.max(tonumber(first[2]) - now, 0) or 0}
end
n = call('DECRBY', lock, #list)
keep(taken, list, ends)
if made and n > 0 then call(publish, channel, text(n)) end -- others may have waited until somebody makes it
return {OK}
