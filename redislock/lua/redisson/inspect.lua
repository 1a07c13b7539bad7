-- KEYS: the lock and the taken permits of a name; of a fair lock its queue, and when the places end; of a
-- fenced lock its counter. Replies what the lock is (lock, rw, permits or nothing), for how much longer, and for a
-- semaphore how many permits are free; then the holds: for each its field and how often it has the lock, and of a
-- reader how much longer the hold lasts; for each permit its id and how much longer it lasts; then the waiters: for
-- each its owner, and how much longer its place lasts; then the last token.
local lock, taken, now = KEYS[1], KEYS[2], wall()
local tag = string.sub(taken, 1, -#':timeout' - 1) -- what the keys of read holds begin with

-- How many holds are shown at most. Other programs' data may be of any size.
local MOST = 10000

-- Returns how much longer something lasts. Other programs' data may be any number.
local function left(ends) return math.floor(math.max(math.min(ends, 2 ^ 52) - now, 0)) end

local waiters, last = {}, 0
if call('TYPE', KEYS[3]).ok == 'list' and call('TYPE', KEYS[4]).ok == 'zset' then
  for i, owner in ipairs(call('LRANGE', KEYS[3], '0', MOST)) do
    waiters[i] = {owner, left(tonumber(call('ZSCORE', KEYS[4], owner) or 0))}
  end
end
if call('TYPE', KEYS[5]).ok == 'string' and call('STRLEN', KEYS[5]) <= 20 then
  last = tonumber(call('GET', KEYS[5])) or 0
end
local function reply(...)
  local all = {...}
  all[5], all[6] = waiters, last
  return all
end

local kind = call('TYPE', lock).ok
if kind == 'hash' and call('HLEN', lock) <= MOST then
  local holds, mode = {}, call('HGET', lock, 'mode')
  local fields = call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local n = tonumber(fields[i + 1])
    if n and fields[i] ~= 'mode' then
      local rest = -2
      for k = 1, math.min(n, 100) do
        if mode then rest = math.max(rest, call('PTTL', tag .. ':' .. fields[i] .. ':rwlock_timeout:' .. k)) end
      end
      holds[#holds + 1] = {fields[i], n, rest}
    end
  end
  return reply(mode and 'rw' or 'lock', call('PTTL', lock), 0, holds)
elseif kind == 'string' and call('STRLEN', lock) <= 20 and call('TYPE', taken).ok == 'zset' then
  local n = tonumber(call('GET', lock))
  if n and call('ZCARD', taken) <= MOST then
    local holds, all = {}, call('ZRANGE', taken, '0', '-1', 'WITHSCORES')
    for i = 1, #all, 2 do holds[#holds + 1] = {all[i], left(tonumber(all[i + 1]))} end
    return reply('permits', call('PTTL', lock), n, holds)
  end
end
return reply('nothing', 0, 0, {})
