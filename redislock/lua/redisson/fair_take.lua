-- Takes a hold of an RFairLock, or a place in its queue. KEYS: those of the name. ARGV: the owner, the TTL, how
-- long a place lasts without being confirmed, the command that publishes, what channels of waiters begin with,
-- whether it wants a place: 0, 1, or 2 if it has had one. Replies {OK}, {HELD, for how much longer, how many are
-- ahead}, {MISMATCH}, or the owner's tombstone.
local lock, queue, ends = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl, life, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), wall()

-- For how long Redisson keeps a place if it is not told otherwise.
local JAVAS = 300000

-- Returns by how much those of Java's who have the first places will shorten the places behind them. Each subtracts, when
-- it gets the lock, for how long its own place was to last, which is five minutes unless there is clearly more left.
local function shortening(places)
  local sum = 0
  for _, other in ipairs(call('LRANGE', queue, '0', places - 1)) do
    if not ours(other) then
      local rest = tonumber(call('ZSCORE', ends, other) or 0) - now - sum
      sum = sum + (rest > JAVAS + 60000 and rest or JAVAS)
    end
  end
  return sum
end

if call('EXISTS', KEYS[4]) == 1 then return {why(KEYS[4])} end
local kind = fair(lock, queue, ends)
if not kind then return {MISMATCH} end
if kind == 'hash' and call('HEXISTS', lock, owner) == 1 then
  call('PEXPIRE', lock, ttl)
  return {OK}
end
local placed = ARGV[6] ~= '0' and call('ZSCORE', ends, owner)
if ARGV[6] == '2' and not placed then
  -- Places are removed only when they are the first. So this one was, and is again.
  call('LPUSH', queue, owner)
  call('ZADD', ends, text(now + life), owner)
end
local free = kind == 'none'
local head, till, removed = first(queue, ends, now, life)
if free and (not head or head == owner) then
  if head then
    call('LPOP', queue)
    call('ZREM', ends, owner)
  end
  call('HSET', lock, owner, '1')
  call('PEXPIRE', lock, ttl)
  return {OK}
end
if free and removed > 0 then tell(ARGV[4], ARGV[5], head) end
local opens = math.max(free and till - now or call('PTTL', lock), 0)
if ARGV[6] == '0' then return {HELD, opens, call('LLEN', queue)} end

local ahead = head == owner and 0 or placed and call('LPOS', queue, owner) or call('RPUSH', queue, owner) - 1
local score = now + life
if ahead > 0 then
  -- When all waiters in Java that are ahead have had the lock, the place must last as long as another, and no longer: if
  -- its owner has died by then, nobody in Java would shorten it.
  local before_it = call('LINDEX', queue, ahead - 1)
  if not ours(before_it) or tonumber(call('ZSCORE', ends, before_it) or 0) > now + 2 * life then
    score = score + shortening(ahead)
  end
end
call('ZADD', ends, text(score), owner)
return {HELD, opens, ahead}
