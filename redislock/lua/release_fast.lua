-- The fast path of release.lua: one exclusive hold for which nobody waits, whose
-- minimum time is over and whose requests are all answered.
if #ARGV == 3 and ARGV[3] == '0' then
  local blob = redis.call('GET', KEYS[1])
  if blob and string.sub(blob, 1, 1) == 'x' then
    local token, taken, expires, owner = string.match(blob, '^x(%d+) (%d+) (%d+) %d+ %d+ ([^ ]+)')
    if owner == ARGV[1] and now < tonumber(expires) and now >= taken + ARGV[2] then
      redis.call('SET', KEYS[1], 'i' .. token, 'PX', life(tonumber(token)))
      return {0}
    end
  end
end
