-- Grants a plain hold (see record.lua), of at most five minutes with its lock-delay, on a name that
-- nobody uses, and replies the token. take.lua and ask.lua follow it. It does with few calls,
-- arguments and numbers, because it grants most holds.
-- KEYS: record. ARGV: the field of the owner's hold, and its text.
local fields = call('HVALS', KEYS[1])
if not fields[2] then
  local last = fields[1] or '00000000000000000'
  if now - string.sub(last, 1, 16) > 0 then -- the clock has not gone back
    local kept = string.sub(last, 17)
    if kept - now >= 900000000 then -- five minutes, and ten more of being idle
      call('HSET', KEYS[1], 'last', string.format('%016d', now) .. kept, ARGV[1], ARGV[2])
    else
      call('HSET', KEYS[1], 'last', string.format('%016d%d', now, now + 1500000000), ARGV[1], ARGV[2])
      call('PEXPIRE', KEYS[1], '1500000')
    end
    return now
  end
end
