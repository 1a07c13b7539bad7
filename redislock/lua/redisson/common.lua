-- Every script of the layout Redisson begins with this. A name has these keys, in this order in KEYS:
--
--   lock     the name itself. Of an RLock a hash: its owner's text, and 1; a thread of Java may have more.
--            Of an RReadWriteLock a hash with mode, which is read or write, too; a writer's field is its
--            owner's text and :write. Of a semaphore a string: how many permits are free.
--   other    Of an RFencedLock its counter. Of a read-write lock the owner's string that lasts as long as its read
--            hold may. Of a semaphore a sorted set: the ids of the permits that are taken, by when they end.
--   channel  where releases are told.
--   gone     string, Holdfast's own, the tombstone of one owner: why its requests are refused.
--   places   only of scripts that take a hold: when places in the queue of an RFairLock of that name end.
--
-- Numbers are milliseconds. Permits, and places in a queue, end by the wall clock: Redisson's clients read that of
-- their hosts. Ours read the server's, so that they agree among each other whatever clocks their hosts have.
local call = redis.call
local OK, HELD, MISMATCH, NOT_HELD, BROKEN = 0, 1, 2, 3, 4

local function text(n) return string.format('%.0f', n) end

-- Renewals and releases go on when the server's memory is full: see record.lua.
local function write_when_full() redis.pcall('ZREM', KEYS[4], '') end

-- Returns the server's wall clock.
local function wall()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Returns why the owner of a tombstone has no hold.
local function why(gone) return tonumber(call('GET', gone) or NOT_HELD) or NOT_HELD end

-- Returns for how much longer a lock of another is there.
local function held(lock) return {HELD, call('PTTL', lock)} end

-- Reports whether an owner is one of Holdfast's.
local function ours(owner) return string.sub(owner, -2) == ':0' end

-- Reports whether others wait for the name as an RFairLock. Another kind of lock would overtake them, and its
-- release would not wake them. Those of the dead are among the places for ever, but have ended.
local function queued(places)
  return call('TYPE', places).ok == 'zset' and call('ZCOUNT', places, '(' .. text(wall()), '+inf') > 0
end

-- Leaves a tombstone, if it is to last.
local function tombstone(gone, status, ms)
  if ms > 0 then call('SET', gone, text(status), 'PX', text(ms)) end
end

-- Calls f for each hold of a batch, with the keys of its name and its arguments, of which each has so many.
local function each(arguments, f)
  local replies = {}
  write_when_full()
  for i = 1, #ARGV / arguments do
    local k, a = 4 * (i - 1), arguments * (i - 1)
    local keys = {lock = KEYS[k + 1], other = KEYS[k + 2], channel = KEYS[k + 3], gone = KEYS[k + 4]}
    replies[i] = f(keys, unpack(ARGV, a + 1, a + arguments))
  end
  return replies
end

-- Renews holds. ARGV for each: its holder, its TTL. F renews one, and returns whether it is there. Replies OK, NOT_HELD
-- or BROKEN for each.
local function renew(f)
  return each(2, function(keys, holder, ttl) return f(keys, holder, ttl) and OK or why(keys.gone) end)
end

-- Releases holds. ARGV for each: its holder; the command that publishes; what the tombstone says, and for how long (0:
-- none); what else f gets. F releases one, and returns whether it was there. Replies as renew.
local function release(f, more)
  return each(4 + (more or 0), function(keys, holder, publish, status, ms, ...)
    local reply = f(keys, holder, publish, ...) and OK or why(keys.gone)
    tombstone(keys.gone, tonumber(status), tonumber(ms))
    return reply
  end)
end
