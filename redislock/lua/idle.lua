-- Grants a plain hold (see record.lua), of at most five minutes with its lock-delay,
-- on a name that nobody uses, and replies the token. It stands before the rest of
-- take.lua and ask.lua, and is sparing with calls, arguments and numbers, because
-- most holds are taken by it.
-- KEYS: record. ARGV: the field of the owner's hold, and its text.
local fields = redis.call('HVALS', KEYS[1])
if not fields[2] then
  local token, last = string.format('%016d', now), fields[1] or ''
  if string.format('%016d', now - BLOCK) > last then -- the clock has not gone back
    local kept = string.sub(last, 17)
    if kept ~= '' and kept - now >= 900000000 then -- five minutes, and ten more of being idle
      redis.call('HSET', KEYS[1], 'last', token .. kept, ARGV[1], ARGV[2])
    else
      redis.call('HSET', KEYS[1], 'last', token .. string.format('%d', now + 1500000000), ARGV[1], ARGV[2])
      redis.call('PEXPIRE', KEYS[1], '1500000')
    end
    return now
  end
end
