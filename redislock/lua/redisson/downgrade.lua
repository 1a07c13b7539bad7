-- Makes a write hold a read hold. KEYS: those of the name, as of a read hold. ARGV: the owner, the writer's
-- field, the TTL, the command that publishes. Replies OK, NOT_HELD or BROKEN.
write_when_full()
local lock, own, owner, field, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local m = mode(lock)
if m == 'write' and call('HEXISTS', lock, field) == 1 then
  call('HDEL', lock, field)
  call('HSET', lock, 'mode', 'read', owner, '1')
  tell_all(ARGV[4], KEYS[3])
elseif m ~= 'read' or call('HEXISTS', lock, owner) == 0 or call('EXISTS', own) == 0 then
  return why(KEYS[4])
end
call('SET', own, '1', 'PX', ttl)
extend(lock, tonumber(ttl))
return OK
