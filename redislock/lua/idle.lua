-- Grants a plain hold (see record.lua), of at most five minutes with its lock-delay, on a name that
-- nobody uses, and replies the token. take.lua and ask.lua follow it. It does with few calls,
-- arguments and numbers, because it grants most holds.
-- KEYS: record first. ARGV: the member of the hold.
if closed == 0 and not fields.err and not fields[3] then
  local mark, taken = fields[1], string.format('%d', now)
  if not mark then
    call('ZADD', KEYS[1], taken, 'e:' .. string.format('%d', now + 1500000000), taken, ARGV[1])
    call('PEXPIRE', KEYS[1], '1500000')
    return now
  elseif now > tonumber(fields[2]) then -- the clock has not gone back
    if string.sub(mark, 3) - now >= 900000000 then -- five minutes, and ten more of being idle
      call('ZADD', KEYS[1], taken, mark, taken, ARGV[1])
    else
      call('ZADD', KEYS[1], taken, 'e:' .. string.format('%d', now + 1500000000), taken, ARGV[1])
      call('ZREM', KEYS[1], mark)
      call('PEXPIRE', KEYS[1], '1500000')
    end
    return now
  end
end
