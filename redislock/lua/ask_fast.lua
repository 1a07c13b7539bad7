-- The fast path of ask.lua: an exclusive hold on a name that nobody uses.
if ARGV[3] == '0' and not string.find(ARGV[1], ' ', 1, true) then
  local blob = redis.call('GET', KEYS[1])
  if not blob or string.sub(blob, 1, 1) == 'i' then
    local token = math.max(blob and tonumber(string.sub(blob, 2)) + 1 or 1, now)
    local expires, delay = now + tonumber(ARGV[6]), tonumber(ARGV[7])
    redis.call('SET', KEYS[1], string.format('x%d %d %d %s %s %s %s %s',
      token, now, expires, ARGV[6], ARGV[7], ARGV[1], ARGV[2], ARGV[8]), 'PX', life(math.max(token, expires + delay)))
    return {0, token}
  end
end
