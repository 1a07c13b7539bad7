-- Releases holds of RFairLocks, and withdraws places. KEYS: those of each hold's name. ARGV for each: its
-- owner; the command that publishes; what the tombstone says, and for how long (0: none); how long a place
-- lasts; what channels of waiters begin with. Replies OK, NOT_HELD or BROKEN for each.
--
-- Redisson shortens the places behind one that is gone, by the time that this one had. One of ours had next to none.
local replies, now = {}, wall()
write_when_full()
for i = 1, #ARGV / 6 do
  local lock, queue, ends, gone = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local owner, publish, life, channel = ARGV[6 * i - 5], ARGV[6 * i - 4], tonumber(ARGV[6 * i - 1]), ARGV[6 * i]
  if fair(lock, queue, ends) then
    local was_first = false
    if call('ZREM', ends, owner) == 1 then
      was_first = call('LINDEX', queue, '0') == owner
      call('LREM', queue, '1', owner)
    end
    if call('HDEL', lock, owner) == 1 then replies[i] = OK end
    if (replies[i] or was_first) and call('EXISTS', lock) == 0 then
      tell(publish, channel, (first(queue, ends, now, life)))
    end
  end
  replies[i] = replies[i] or why(gone)
  tombstone(gone, tonumber(ARGV[6 * i - 3]), tonumber(ARGV[6 * i - 2]))
end
return replies
