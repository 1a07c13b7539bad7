-- Releases holds of RFairLocks, and withdraws places. ARGV has more for each: how long a place lasts; what channels of
-- waiters begin with.
--
-- Redisson shortens the places behind one that is gone, by the time that this one had. One of ours had next to none.
local now = wall()
return release(function(keys, owner, publish, life, channel)
  local lock, queue, ends = keys.lock, keys.other, keys.channel
  if not fair(lock, queue, ends) then return false end
  local was_first = false
  if call('ZREM', ends, owner) == 1 then
    was_first = call('LINDEX', queue, '0') == owner
    call('LREM', queue, '1', owner)
  end
  local there = call('HDEL', lock, owner) == 1
  if (there or was_first) and call('EXISTS', lock) == 0 then
    tell(publish, channel, (first(queue, ends, now, tonumber(life))))
  end
  return there
end, 2)
