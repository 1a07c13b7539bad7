-- The record of one name and its steps, as internal/record specifies them. This
-- text stands before each operation's own.

-- Fields. A closed hold has no owner any more, but keeps others out until it ends.
local LAST, GONE, HOLDS, QUEUE = 1, 2, 3, 4 -- of a record; LAST: the last token; GONE: the end of the last farewell
local OWNER, CHANNEL, MODE, SLOTS, PERMITS, TTL, DELAY, NOTE = 1, 2, 3, 4, 5, 6, 7, 8 -- of holds and places
local TOKEN, TAKEN, EXPIRES = 9, 10, 11 -- of holds
local JOINED, SEEN, ASKED, POLL = 9, 10, 11, 12 -- of places; ASKED: the owner's instant, which only it understands

local EXCLUSIVE, SHARED, SLOT = 0, 1, 2 -- modes
local OK, HELD, MISMATCH, NOT_HELD, BROKEN = 0, 1, 2, 3, 4 -- replies

local winners = {} -- who was granted out of the queue and must be told

-- A token is higher than all before it, and than those of a record that was
-- forgotten, as long as the clock has not gone back past them (P3).
local function token(r)
  r[LAST] = math.max(r[LAST] + 1, now)
  return r[LAST]
end

local function find(list, owner)
  for i, item in ipairs(list) do
    if item[OWNER] == owner then return item, i end
  end
end

local function remove(list, owner)
  local item, i = find(list, owner)
  if item then table.remove(list, i) end
  return item
end

-- Can a hold for req stand beside those there are? (P1)
local function admits(r, req)
  local permits = req[PERMITS]
  for _, h in ipairs(r[HOLDS]) do
    if req[MODE] == SLOT then
      permits = permits + h[PERMITS]
    elseif req[MODE] == EXCLUSIVE or h[MODE] == EXCLUSIVE then
      return false
    end
  end
  return req[MODE] ~= SLOT or permits <= req[SLOTS]
end

local function take(r, req, valid)
  local h = {unpack(req, 1, NOTE)}
  h[TOKEN], h[TAKEN], h[EXPIRES] = token(r), now, now + valid
  table.insert(r[HOLDS], h)
  return h
end

-- Grants the first place. The hold is a claim, short enough that a winner who has
-- stopped cannot sit on it, until its first renewal (P7).
local function hand_over(r)
  local p = table.remove(r[QUEUE], 1)
  local claim = math.min(2 * p[POLL], p[TTL])
  table.insert(winners, {take(r, p, claim), claim, p[ASKED]})
end

local function settle(r)
  local holds = r[HOLDS]
  for i = #holds, 1, -1 do
    local h = holds[i]
    if h[OWNER] ~= '' and now >= h[EXPIRES] then
      -- Vanished: closed for the lock-delay, counted from the expiry (P5).
      h[OWNER], h[CHANNEL], h[EXPIRES] = '', '', h[EXPIRES] + h[DELAY]
    end
    if h[OWNER] == '' and now >= h[EXPIRES] then table.remove(holds, i) end
  end
  local queue = r[QUEUE]
  for i = #queue, 1, -1 do
    if now - queue[i][SEEN] > 2 * queue[i][POLL] then table.remove(queue, i) end
  end
  while queue[1] and admits(r, queue[1]) do hand_over(r) end
end

-- A record is kept in one of three forms, told apart by the first byte. Most are
-- idle (i) or one exclusive hold for which nobody waits (x): these are text, which
-- the fast paths read and write without the rest of this file. They have no
-- farewells. All others are packed.
local function encode(r)
  local h = r[HOLDS][1]
  if #r[QUEUE] > 0 or r[HOLDS][2] or r[GONE] > now then return cmsgpack.pack(r) end
  if not h then return string.format('i%d', r[LAST]) end
  if h[MODE] ~= EXCLUSIVE or h[OWNER] == '' or h[TOKEN] ~= r[LAST] then return cmsgpack.pack(r) end
  return string.format('x%d %d %d %d %d %s %s %s',
    h[TOKEN], h[TAKEN], h[EXPIRES], h[TTL], h[DELAY], h[OWNER], h[CHANNEL], h[NOTE])
end

local function decode(blob)
  local form = string.sub(blob, 1, 1)
  if form == 'i' then return {tonumber(string.sub(blob, 2)), 0, {}, {}} end
  if form ~= 'x' then return cmsgpack.unpack(blob) end
  local last, taken, expires, ttl, delay, owner, channel, note =
    string.match(blob, '^x(%d+) (%d+) (%d+) (%d+) (%d+) ([^ ]+) ([^ ]*) (.*)$')
  last = tonumber(last)
  return {last, 0, {{
    owner, channel, EXCLUSIVE, 0, 0, tonumber(ttl), tonumber(delay), note, last, tonumber(taken), tonumber(expires),
  }}, {}}
end

local function save(key, r)
  local last = math.max(r[LAST], r[GONE])
  for _, h in ipairs(r[HOLDS]) do last = math.max(last, h[EXPIRES] + h[DELAY]) end
  for _, p in ipairs(r[QUEUE]) do last = math.max(last, p[SEEN] + 2 * p[POLL]) end
  redis.call('SET', key, encode(r), 'PX', life(last))
end

-- Reports false if the client is certainly gone: nobody listens on its channel.
local function tell(channel, message)
  if channel == '' then return true end -- it polls
  local n = redis.pcall('PUBLISH', channel, message)
  return type(n) ~= 'number' or n > 0
end

-- Writes the record, and only then tells the winners: a write may fail, and nobody
-- may trust a hold that is not there (P1). Winners that are gone are skipped (P7).
local function commit(key, r)
  save(key, r)
  while #winners > 0 do
    local told, gone = winners, false
    winners = {}
    for _, w in ipairs(told) do
      local h, claim, asked = unpack(w)
      local message = table.concat({'g', string.format('%d', h[TOKEN]), string.format('%d', claim), asked, h[OWNER]}, ' ')
      if not tell(h[CHANNEL], message) then
        remove(r[HOLDS], h[OWNER])
        gone = true
      end
    end
    if gone then
      settle(r)
      save(key, r)
    end
  end
end

-- Returns the record of a name, settled.
local function load(key)
  local blob = redis.call('GET', key)
  if not blob then return {0, 0, {}, {}} end
  local r = decode(blob)
  settle(r)
  if #winners > 0 then commit(key, r) end
  return r
end

-- Remembers for a while what to tell an owner that comes back (P6).
local function say(r, key, what, us)
  redis.call('SET', key, what, 'PX', string.format('%d', math.max(1, math.ceil(us / 1000))))
  r[GONE] = math.max(r[GONE], now + us)
end

-- Why an owner has no hold: BROKEN or NOT_HELD; or nil, if nothing is remembered.
local function farewell(r, key)
  return now < r[GONE] and tonumber(redis.call('GET', key)) or nil
end

-- Calls f for each of n items; an error of one does not spoil the others.
local function each(n, f)
  local replies = {}
  for i = 1, n do
    local ok, reply = pcall(f, i)
    winners = ok and winners or {}
    if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
    replies[i] = reply
  end
  return replies
end
