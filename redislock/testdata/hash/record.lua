-- The record of one name and its steps, as internal/record specifies them. The text of each
-- operation follows this one.

-- Fields. A closed hold has no owner any more, but keeps others out until it ends.
local LAST, KEY_END, TOMBSTONES_END, HOLDS, QUEUE, FIELD = 1, 2, 3, 4, 5, 6 -- of a record: see below
-- Of holds and places:
local OWNER, CLIENT, MODE, SLOTS, PERMITS, TTL, DELAY, NOTE, MIN = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- Of holds. CLAIM: 1 if it was handed over and not yet renewed. BLOCK_END: the last token that is
-- reserved for it; nil: TOKEN is.
local TOKEN, TAKEN, EXPIRES, CLAIM, BLOCK_END = 10, 11, 12, 13, 14
-- Of places. ASKED: the owner's instant, which only the owner understands. UNSUBSCRIBED: 1 if nobody
-- was subscribed to the client's channel at its last request, else 0. TOKENS: how many tokens to
-- reserve; nil: one.
local JOINED, SEEN, ASKED, POLL, UNSUBSCRIBED, TOKENS = 10, 11, 12, 13, 14, 15

local EXCLUSIVE, SHARED, SLOT = 0, 1, 2 -- modes
local OK, HELD, MISMATCH, NOT_HELD, BROKEN = 0, 1, 2, 3, 4 -- replies

local winners = {} -- holds granted out of the queue, whose owners must be told

-- Reserves n tokens and returns the first. They are higher than all before them, and than
-- those of a record that was forgotten, as long as the clock has not gone back past them (P3).
local function reserve(r, n)
  local first = math.max(r[LAST] + 1, now)
  r[LAST] = first + n - 1
  return first
end

-- Makes the tokens that are reserved for the hold and were not used available again, so that
-- the hybrid clock is not driven ahead of the time. The last that was used is given. If others
-- were given out after the block, its rest is lost.
local function give_back(r, h, used)
  if r[LAST] == h[BLOCK_END] and h[TOKEN] <= used and used < r[LAST] then r[LAST] = used end
end

-- How many tokens the hold has, TOKEN the first of them.
local function block(h) return math.max(0, (h[BLOCK_END] or 0) - h[TOKEN]) + 1 end

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

-- Reports whether a hold for req may stand beside those there are (P1).
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

local function grant(r, req, valid, claim)
  local h = {unpack(req, 1, MIN)}
  h[TOKEN], h[TAKEN], h[EXPIRES], h[CLAIM] = reserve(r, req[TOKENS] or 1), now, now + valid, claim
  if r[LAST] > h[TOKEN] then h[BLOCK_END] = r[LAST] end
  table.insert(r[HOLDS], h)
  return h
end

-- Grants the hold to the first place. Until its first renewal the hold is a claim, which is short,
-- so that a winner that has stopped does not delay the others (P7).
local function hand_over(r)
  local p = table.remove(r[QUEUE], 1)
  local claim = math.min(2 * p[POLL], p[TTL])
  table.insert(winners, {grant(r, p, claim, 1), claim, p[ASKED], p[UNSUBSCRIBED] == 1})
end

-- Returns when the name opens if the hold vanishes at its expiry (P5). A claim has no minimum: its
-- winner has not begun anything yet.
local function opens(h)
  local at = h[EXPIRES] + h[DELAY]
  if h[CLAIM] == 1 then return at end
  return math.max(at, math.min(h[TAKEN], h[EXPIRES]) + h[MIN])
end

-- Settles the record: ends what has expired, drops dead waiters, and grants what is free. Reports
-- whether the end of a closed hold was moved forward, because the clock was set back.
local function settle(r)
  local holds, sooner = r[HOLDS], false
  for i = #holds, 1, -1 do
    local h = holds[i]
    if h[OWNER] ~= '' and now >= h[EXPIRES] then
      h[OWNER], h[CLIENT], h[EXPIRES] = '', '', opens(h) -- vanished
    end
    local longest = now + math.max(h[DELAY], h[MIN])
    if h[OWNER] == '' and h[EXPIRES] > longest then -- the clock was set back since
      h[EXPIRES], sooner = longest, true
    end
    if h[OWNER] == '' and now >= h[EXPIRES] then table.remove(holds, i) end
  end
  local queue = r[QUEUE]
  for i = #queue, 1, -1 do
    if now - queue[i][SEEN] > 2 * queue[i][POLL] then table.remove(queue, i) end
  end
  while queue[1] and admits(r, queue[1]) do hand_over(r) end
  return sooner
end

-- A record is a hash. Its field 'last' has the last token, 16 digits, and the end of
-- the key's life. Without another field the name is idle. A plain hold, exclusive,
-- without a minimum and with nobody waiting, is a field of its own, 'h:OWNER', with the text
-- "EXPIRES TTL DELAY CLIENT NOTE"; its token is the last one, by which it was taken,
-- and EXPIRES is 0 until it is renewed. Thus take.lua need not read this file, and a
-- plain hold is released by HDEL of its field, without a script. All other records
-- have one field 'p', packed: TOMBSTONES_END (when the last tombstone ends), HOLDS, QUEUE. Before
-- there were minimum holds that was field 'r' with other columns. It is refused: misread, it might
-- let a second holder in (P1).
local function encode(r)
  local h = r[HOLDS][1]
  if not h and #r[QUEUE] == 0 and r[TOMBSTONES_END] <= now then return end
  if h and not r[HOLDS][2] and #r[QUEUE] == 0 and r[TOMBSTONES_END] <= now
    and h[MODE] == EXCLUSIVE and h[OWNER] ~= '' and h[MIN] == 0
    and h[TOKEN] == r[LAST] and h[TAKEN] == r[LAST] then
    -- Not %s, which ends a text at a zero byte.
    local times = string.format('%d %d %d ', h[EXPIRES], h[TTL], h[DELAY])
    return 'h:' .. h[OWNER], times .. h[CLIENT] .. ' ' .. h[NOTE]
  end
  return 'p', cmsgpack.pack({r[TOMBSTONES_END], r[HOLDS], r[QUEUE]})
end

local function decode(fields)
  local r = {0, 0, 0, {}, {}}
  local text
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'last' then
      r[LAST], r[KEY_END] = tonumber(string.sub(value, 1, 16)), tonumber(string.sub(value, 17))
    else
      r[FIELD], text = field, value
    end
  end
  if r[FIELD] == 'r' then
    error('another version of Holdfast has written this lock: ' ..
      'use one version, or delete the key when nobody holds it', 0)
  elseif r[FIELD] == 'p' then
    r[TOMBSTONES_END], r[HOLDS], r[QUEUE] = unpack(cmsgpack.unpack(text))
  elseif text then
    local expires, ttl, delay, client, note = string.match(text, '^(%d+) (%d+) (%d+) ([^ ]*) (.*)$')
    expires = expires == '0' and r[LAST] + ttl or tonumber(expires)
    r[HOLDS][1] = {
      string.sub(r[FIELD], 3), client, EXCLUSIVE, 0, 0, tonumber(ttl), tonumber(delay), note, 0,
      r[LAST], r[LAST], expires, 0,
    }
  end
  return r
end

-- A record ends by itself (P9), IDLE after its last use: if the clock is set back by less than that,
-- the last token is still known, and tokens grow (P3). The key is kept for longer, so that its end
-- need not be set every time.
local IDLE = 600000000

local function write(key, r)
  local ends = math.max(now, r[LAST], r[TOMBSTONES_END])
  for _, h in ipairs(r[HOLDS]) do ends = math.max(ends, opens(h)) end
  for _, p in ipairs(r[QUEUE]) do ends = math.max(ends, p[SEEN] + 2 * p[POLL]) end
  local short = r[KEY_END] < ends + IDLE
  if short then r[KEY_END] = ends + 2 * IDLE end
  local last = string.format('%016d%d', r[LAST], r[KEY_END]) -- as in take.lua
  local field, text = encode(r)
  if field then
    redis.call('HSET', key, 'last', last, field, text)
  else
    redis.call('HSET', key, 'last', last)
  end
  if r[FIELD] and r[FIELD] ~= field then redis.call('HDEL', key, r[FIELD]) end
  if short then redis.call('PEXPIRE', key, string.format('%d', math.ceil((r[KEY_END] - now) / 1000))) end
  r[FIELD] = field
end

local function channel(key, client) return string.match(key, '^[^{]*') .. 'wake:' .. client end

-- Publishes a message for the client. Reports false if nobody is subscribed; a client that polls
-- needs no message.
local function publish(key, client, message)
  if client == '' then return true end
  local n = redis.pcall('PUBLISH', channel(key, client), message)
  return type(n) ~= 'number' or n > 0
end

-- Returns 1 if nobody is subscribed to the client's channel, else 0. Where the user may not ask, it
-- returns 0.
local function unsubscribed(key, client)
  if client == '' then return 0 end
  local n = redis.pcall('PUBSUB', 'NUMSUB', channel(key, client))
  return n[2] == 0 and 1 or 0
end

-- Writes the record, and then tells the winners: a write may fail, and nobody may trust a hold that
-- is not in the store (P1). Dead winners are skipped (P7): those whose clients were subscribed when
-- they asked last, and are not now. Suppose the connections of a client broke, and it asks for a
-- place before it has subscribed again. Nobody is subscribed, but the client lives: it keeps its
-- place (P8) and learns of its grant by its next request.
local function commit(key, r)
  write(key, r)
  while #winners > 0 do
    local granted, dead = winners, false
    local contended = #r[QUEUE] > 0 and 1 or 0
    winners = {}
    for _, w in ipairs(granted) do
      local h, claim, asked, was_unsubscribed = unpack(w)
      local message = string.format('g %d %d %s %d %d ', h[TOKEN], claim, asked, block(h), contended)
        .. h[OWNER]
      if not publish(key, h[CLIENT], message) and not was_unsubscribed then
        remove(r[HOLDS], h[OWNER])
        dead = true
      end
    end
    if dead then
      settle(r)
      write(key, r)
    end
  end
end

-- Returns the record of a name, settled.
local function read(key)
  local r = decode(redis.call('HGETALL', key))
  if settle(r) or #winners > 0 then commit(key, r) end
  return r
end

-- Leaves a tombstone: for a while, requests and releases of the owner are answered with this (P6).
local function leave_tombstone(r, key, what, us)
  redis.call('SET', key, what, 'PX', string.format('%d', math.max(1, math.ceil(us / 1000))))
  r[TOMBSTONES_END] = math.max(r[TOMBSTONES_END], now + us)
end

-- Returns what the tombstone of an owner says, BROKEN or NOT_HELD, or nil if there is none.
local function tombstone(r, key)
  return now < r[TOMBSTONES_END] and tonumber(redis.call('GET', key)) or nil
end

-- A server whose memory is full (OOM) refuses the first write of a script if that needs memory,
-- and lets all others pass. Renewals and releases must go on then, so they begin with a write that
-- needs no memory and changes nothing. It is to a key that nobody uses, because another program may
-- have overwritten the record's.
local function write_when_full() redis.call('HDEL', KEYS[1] .. ':', '') end

-- Calls f for each of n items. Each succeeds or fails on its own.
local function each(n, f)
  local replies = {}
  write_when_full()
  for i = 1, n do
    local ok, reply = pcall(f, i)
    winners = ok and winners or {}
    if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
    replies[i] = reply
  end
  return replies
end
