-- A name has these keys, in this order in KEYS:
--
--   lock    string. There as long as the name is taken or closed; its value is the owner's. This is
--           all that other programs know.
--   record  hash. t: the last token. Of the last hold: o its owner, u until when it has the name, m
--           until when its minimum lasts, g since when it has it, d its lock-delay, n its note.
--   gone    string, the tombstone of one owner: why its requests are refused.
local OK, HELD, MISMATCH, NOT_HELD, BROKEN = 0, 1, 2, 3, 4

-- The value of a lock that has no owner any more, but whose minimum hold is not over.
local CLOSED = 'holdfast:closed'

-- How long a record outlives its last hold, in milliseconds.
local IDLE = 600000

local function text(n) return string.format('%d', n) end

-- Milliseconds, rounded up: the server never keeps a lock for less than its holder trusts it.
local function millis(us) return math.ceil(us / 1000) end

local function read(record)
  local f = call('HMGET', record, 't', 'o', 'u', 'm', 'g', 'd', 'n')
  local function n(i) return tonumber(f[i] or 0) or 0 end
  return {
    key = record, last = n(1), owner = f[2] or '', expires = n(3), min = n(4), taken = n(5), delay = n(6),
    note = f[7] or '',
  }
end

-- Reports whether the lock has this value. Another program's value may be of any length.
local function has(lock, owner)
  return call('STRLEN', lock) == #owner and call('GETRANGE', lock, 0, #owner - 1) == owner
end

-- Reports whether the owner has the name.
local function held(lock, r, owner)
  return owner ~= '' and r.owner == owner and now < r.expires
    and call('TYPE', lock).ok == 'string' and has(lock, owner)
end

-- Renewals and releases go on when the server's memory is full: see record.lua.
local function write_when_full() redis.pcall('HDEL', KEYS[2], '') end

-- Keeps the lock, and the record longer than that.
local function keep(lock, r, us)
  local ms = millis(us)
  call('PEXPIRE', lock, text(ms))
  call('PEXPIRE', r.key, text(ms + IDLE))
end
