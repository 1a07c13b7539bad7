-- Returns the mode of an RReadWriteLock: nil if the name is free, and false if it is something else.
local function mode(lock)
  local kind = call('TYPE', lock).ok
  if kind == 'none' then return nil end
  return kind == 'hash' and call('HGET', lock, 'mode')
end

-- Lets the hash last for so long at least. A renewal of Java sets it to that client's watchdog, so that a
-- hold of another, which lasts longer, would end with it: the hash never gets less here.
local function extend(lock, ms)
  local rest = call('PTTL', lock)
  if rest ~= -1 and rest < ms then call('PEXPIRE', lock, text(ms)) end
end

-- Tells all waiters, of which readers may all get the lock. Redisson's client wakes by 1 only those of its threads that
-- wait already. One that has just been refused, and is about to wait, would sleep until the TTL that it was told is over:
-- 0 wakes one more, now or when it begins to wait.
local function tell_all(publish, channel)
  call(publish, channel, '1')
  call(publish, channel, '0')
end

-- How many of one field's read holds are looked at.
local MOST = 1000

-- Returns for how much longer any read hold lasts; less than 1 if none does.
local function longest(lock, tag)
  local most, fields = -2, call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local n = tonumber(fields[i + 1])
    if n then
      if n > MOST then return call('PTTL', lock) end -- it is not shortened
      for k = n, 1, -1 do
        most = math.max(most, call('PTTL', tag .. ':' .. fields[i] .. ':rwlock_timeout:' .. k))
      end
    end
  end
  return most
end

-- Returns what the strings of all read holds begin with, of an owner's.
local function tag_of(own, owner) return string.sub(own, 1, -#(':' .. owner .. ':rwlock_timeout:1') - 1) end

-- Renews the read hold of an owner, whose other key lasts as long as the hold may. Returns whether it is there. The hash
-- then lasts for as long as any read hold, also one of Java's that a renewal in Java has cut short.
local function renew_reader(keys, owner, ttl)
  local lock, own = keys.lock, keys.other
  if call('EXISTS', own) == 0 or not mode(lock) or call('HEXISTS', lock, owner) == 0 then return false end
  call('PEXPIRE', own, ttl)
  extend(lock, math.max(tonumber(ttl), longest(lock, tag_of(own, owner))))
  return true
end

-- Releases the read hold of an owner, however often it has it. Returns whether it was there. The hash then lasts as
-- long as the longest read hold that is left, as Redisson does it: so the holds of the dead end in time.
local function release_reader(keys, owner, publish)
  local lock, own, m = keys.lock, keys.other, mode(keys.lock)
  local times = m and tonumber(call('HGET', lock, owner) or 0) or 0
  if times <= 0 then return false end
  local prefix = string.sub(own, 1, -2)
  for k = 1, math.min(times, MOST) do call('DEL', prefix .. k) end
  call('HDEL', lock, owner)
  local rest = longest(lock, tag_of(own, owner))
  if rest > 0 then
    call('PEXPIRE', lock, text(rest))
  elseif m == 'read' then
    call('DEL', lock)
    call(publish, keys.channel, '0')
  end
  return true
end

-- Returns the owner of a writer's field, if it is one of Holdfast's. If the answer to its downgrade was lost, its client
-- goes on with the grant of a writer, and the owner has a read hold.
local function downgraded(field)
  local owner = string.sub(field, 1, -#':write' - 1)
  return ours(owner) and owner
end
