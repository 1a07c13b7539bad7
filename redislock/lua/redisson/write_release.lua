-- Releases write holds, and those that were downgraded since.
return release(function(keys, field, publish)
  local lock, reader = keys.lock, downgraded(field)
  if mode(lock) ~= 'write' or call('HDEL', lock, field) == 0 then
    return reader and release_reader(keys, reader, publish)
  end
  if call('HLEN', lock) == 1 then
    call('DEL', lock)
  else
    call('HSET', lock, 'mode', 'read') -- the writer, a thread of Java, has read holds too
  end
  tell_all(publish, keys.channel)
  return true
end)
