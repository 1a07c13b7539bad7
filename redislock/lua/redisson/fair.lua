-- Of an RFairLock the keys are these, in this order in KEYS: the lock, its queue, when the places end, and the
-- tombstone of an owner. The queue is a list of owners; a place ends at a time, which is only looked at when it is
-- the first.

-- Returns none if the lock is free, hash if somebody has it, and nil if the keys are not those of a fair lock.
local function fair(lock, queue, ends)
  local kind, list, set = call('TYPE', lock).ok, call('TYPE', queue).ok, call('TYPE', ends).ok
  if (list == 'none' or list == 'list') and (set == 'none' or set == 'zset')
    and (kind == 'none' or kind == 'hash' and call('HEXISTS', lock, 'mode') == 0) then
    return kind
  end
end

-- How many places are removed in one go. Of more that have ended the first one is not removed, and nobody
-- overtakes it yet.
local MOST = 1000

-- How long a place of ours lasts at most when it is the first, unless the caller's own last for longer: two polls.
-- One behind places of Java lasts for longer; if its owner had died, it would hold up the others.
local LIFE = 2000

-- Removes the first places if they have ended, and returns the first owner that is left, or nil, until when its
-- place lasts, and how many were removed. Life is how long the caller's own places last.
local function first(queue, ends, now, life)
  local owner, till, removed
  for n = 0, MOST do
    owner, removed = call('LINDEX', queue, '0'), n
    if not owner then return nil, nil, removed end
    till = tonumber(call('ZSCORE', ends, owner) or 0)
    if till > now or n == MOST then break end
    call('ZREM', ends, owner)
    call('LPOP', queue)
  end
  local most = now + math.max(life, LIFE)
  if ours(owner) and till > most then
    till = most
    call('ZADD', ends, text(till), owner)
  end
  return owner, till, removed
end

-- Tells the first owner that it may take the lock.
local function tell(publish, channel, owner)
  if owner then call(publish, channel .. ':' .. owner, '0') end
end
