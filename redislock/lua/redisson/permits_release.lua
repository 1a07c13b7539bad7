-- Gives permits back.
local now = wall()
return release(function(keys, holder, publish)
  local list, n = ids(holder), 0
  if not free(keys.lock, keys.other) then return false end
  local there = has(keys.other, list, now)
  for _, id in ipairs(list) do n = n + call('ZREM', keys.other, id) end -- Lua cannot unpack so many as there may be
  if n > 0 then give(keys.lock, n, publish, keys.channel) end
  return there
end)
