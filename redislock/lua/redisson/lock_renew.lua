-- Renews holds of RLocks.
return renew(function(keys, owner, ttl)
  return call('TYPE', keys.lock).ok == 'hash' and call('HEXISTS', keys.lock, owner) == 1
    and call('PEXPIRE', keys.lock, ttl) == 1
end)
