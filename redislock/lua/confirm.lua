-- Confirms a place while one exclusive hold keeps all others out, as ask.lua does, which follows. It
-- is most of what a crowd asks for, so it does with little. ARGV and the reply are ask.lua's.
local text = fields[3] and not fields.err and not fields[5] and call('HGET', KEYS[4], string.match(ARGV[1], '^h:([^ ]*)'))
if text then
  local owner, hold, ttl, delay, more, note = string.match(ARGV[1], '^h:([^ ]*)'),
    string.match(fields[3], '^h:([^ ]*) (%d+) (%d+) [^ ]* (0,[^ ]*) (.*)$')
  local expires, first = hold and fields[4] + ttl, call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')
  local ahead = call('ZRANK', KEYS[2], owner)
  if hold and hold ~= '' and now < expires and ahead and first[2] and now <= tonumber(first[2]) then
    local sent, poll, tokens = string.match(ARGV[2], '^%d+ %d+ %d+ %d+ (%-?%d+) (%d+) %d %d (%d+)')
    local client, none = string.match(ARGV[1], '^[^ ]* %d+ %d+ ([^ ]*)'), '0'
    if string.sub(client, 1, 1) == '~' then
      none = '1' -- see unsubscribed in record.lua
    else
      local n = redis.pcall('PUBSUB', 'NUMSUB', string.match(KEYS[1], '^[^{]*') .. 'wake:' .. client)
      if n[2] == 0 then none = '1' end
    end
    local ends = now + 2 * poll
    if ahead >= 128 then ends = now + math.floor(poll * 3 / 2) + poll end
    if string.sub(fields[1], 3) - ends >= 600000000 then -- the keys last for long enough
      call('ZADD', KEYS[3], string.format('%d', ends), owner)
      call('HSET', KEYS[4], owner, sent .. ' ' .. tokens .. ' ' .. none .. string.match(text, '^%-?%d+ %d+ %d( .*)$'))
      local min, token, taken, claim = string.match(more, '^0,%d+,%d+,(%d+),(%d+),(%d+),(%d)')
      local opens = expires + delay
      if claim == '0' then opens = math.max(opens, math.min(taken, expires) + min) end
      return {1, call('ZCARD', KEYS[2]), opens - now, note, tonumber(token), ahead}
    end
  end
end
