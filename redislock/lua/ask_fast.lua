-- The fast path of ask.lua: an exclusive hold on a name that nobody uses.
if string.sub(ARGV[2], 1, 1) == '0' then
  local blob = redis.call('GET', KEYS[1])
  if not blob or string.sub(blob, 1, 1) == 'i' then
    local token = math.max(blob and tonumber(string.sub(blob, 2)) + 1 or 1, now)
    local ttl, delay = string.match(ARGV[1], '^(%d+) (%d+)')
    local expires = now + ttl
    redis.call('SET', KEYS[1], string.format('x%d %d %d ', token, now, expires) .. ARGV[1],
      'PX', life(math.max(token, expires + delay)))
    return {0, token}
  end
end
