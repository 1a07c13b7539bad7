-- Releases holds of RLocks, however often their owners have them.
return release(function(keys, owner, publish)
  if call('TYPE', keys.lock).ok ~= 'hash' or call('HDEL', keys.lock, owner) == 0 then return false end
  if call('EXISTS', keys.lock) == 0 then call(publish, keys.channel, '0') end
  return true
end)
