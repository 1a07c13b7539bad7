-- Releases write holds, and those that were downgraded since. KEYS: those of each hold's name. ARGV for each: the
-- writer's field; the command that publishes; what the tombstone says, and for how long (0: none). Replies OK,
-- NOT_HELD or BROKEN for each.
local replies = {}
write_when_full()
for i = 1, #ARGV / 4 do
  local lock, channel, gone = KEYS[4 * i - 3], KEYS[4 * i - 1], KEYS[4 * i]
  local field, publish = ARGV[4 * i - 3], ARGV[4 * i - 2]
  local reader = downgraded(field)
  if mode(lock) == 'write' and call('HDEL', lock, field) == 1 then
    if call('HLEN', lock) == 1 then
      call('DEL', lock)
    else
      call('HSET', lock, 'mode', 'read') -- the writer, a thread of Java, has read holds too
    end
    tell_all(publish, channel)
    replies[i] = OK
  else
    local there = reader and release_reader(lock, KEYS[4 * i - 2], reader, publish, channel)
    replies[i] = there and OK or why(gone)
  end
  tombstone(gone, tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i]))
end
return replies
