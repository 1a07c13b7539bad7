-- Renews permits. Those that have ended are not revived, though nobody may have taken them yet.
local now = wall()
return renew(function(keys, holder, ttl)
  local list = ids(holder)
  if not free(keys.lock, keys.other) or not has(keys.other, list, now) then return false end
  keep(keys.other, list, now + tonumber(ttl))
  return true
end)
