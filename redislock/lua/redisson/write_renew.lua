-- Renews write holds, and those that were downgraded since.
return renew(function(keys, field, ttl)
  local lock, reader = keys.lock, downgraded(field)
  if mode(lock) ~= 'write' or call('HEXISTS', lock, field) == 0 then
    return reader and renew_reader(keys, reader, ttl)
  end
  extend(lock, tonumber(ttl))
  return true
end)
