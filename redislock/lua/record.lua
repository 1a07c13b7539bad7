-- The state of one name and its steps, as internal/record specifies them. The text of each operation
-- follows this one. A name has these keys, in this order in KEYS, for each item of a batch anew:
--
--   record  sorted set. "e:END": the last token. END is when the key ends. Without another member the
--           name is idle. "h:…": a hold, and since when its TTL runs. "t:": when the last tombstone ends.
--   queue   sorted set. OWNER of each place: its ticket.
--   until   sorted set. OWNER of each place: when it ends unless it is confirmed.
--   places  hash. OWNER: the rest of the place.
--   gone    sorted set. "WHY:OWNER", a tombstone: when it ends.
--
-- A sign of life of a waiter writes its own entries of until and places only. Nothing reads all
-- places, but inspect.lua.
local KEYS_OF_A_NAME = 5

local EXCLUSIVE, SHARED, SLOT = 0, 1, 2 -- modes
local OK, HELD, MISMATCH, NOT_HELD, BROKEN = 0, 1, 2, 3, 4 -- replies

local winners = {} -- holds granted out of the queue, whose owners must be told

-- Reserves n tokens and returns the first. They are higher than all before them, and than
-- those of a record that was forgotten, as long as the clock has not gone back past them (P3).
local function reserve(r, n)
  local first = math.max(r.last + 1, now)
  r.last = first + n - 1
  return first
end

-- Makes the tokens that are reserved for the hold and were not used available again, so that
-- the hybrid clock is not driven ahead of the time. The last that was used is given. If others
-- were given out after the block, its rest is lost.
local function give_back(r, h, used)
  if r.last == h.block_end and h.token <= used and used < r.last then r.last = used end
end

-- How many tokens the hold has, h.token the first of them.
local function block(h) return math.max(0, h.block_end - h.token) + 1 end

-- Returns the live hold of the owner, and its index.
local function held(r, owner)
  for i, h in ipairs(r.holds) do
    if h.owner == owner and owner ~= '' then return h, i end
  end
end

-- Reports whether a hold for req may stand beside those there are (P1).
local function admits(r, req)
  local permits = req.permits
  for _, h in ipairs(r.holds) do
    if req.mode == SLOT then
      permits = permits + h.permits
    elseif req.mode == EXCLUSIVE or h.mode == EXCLUSIVE then
      return false
    end
  end
  return req.mode ~= SLOT or permits <= req.slots
end

-- Reports whether a hold keeps all others out, whatever they are.
local function blocked(r) return r.holds[1] and r.holds[1].mode == EXCLUSIVE end

local function grant(r, req, valid, claim)
  local h = {
    owner = req.owner, client = req.client, mode = req.mode, slots = req.slots, permits = req.permits,
    ttl = req.ttl, delay = req.delay, note = req.note, min = req.min,
    token = reserve(r, req.tokens), taken = now, expires = now + valid, claim = claim,
  }
  h.block_end = r.last
  table.insert(r.holds, h)
  return h
end

-- Returns when the name opens if the hold vanishes at its expiry (P5). A claim has no minimum: its
-- winner has not begun anything yet.
local function opens(h)
  local at = h.expires + h.delay
  if h.claim == 1 then return at end
  return math.max(at, math.min(h.taken, h.expires) + h.min)
end

-- How long a place lasts that has so many before it: driver.Caps.PlaceLife.
local FAR = 128
local function life(poll, ahead)
  if ahead < FAR then return 2 * poll end
  return math.floor(math.max(poll * 3 / 2, poll * math.min(ahead / FAR, 8))) + poll
end

-- Returns the owner of the first place, or nil. The two first are read at a time, because the one is
-- granted, and is told whether there is another.
local function head(r)
  if not r.heads[1] then r.heads = call('ZRANGE', r.queue, '0', '1') end
  return r.heads[1]
end

-- Returns the place of an owner, or nil.
local function place(r, owner)
  local text = call('HGET', r.places, owner)
  if not text then return end
  local asked, tokens, unsubscribed, joined, poll, mode, slots, permits, min, ttl, delay, client, note =
    string.match(text, '^(%-?%d+) (%d+) (%d) (%d+) (%d+) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) ([^ ]*) (.*)$')
  return asked and { -- what is no place is none
    owner = owner, asked = asked, tokens = tonumber(tokens), unsubscribed = unsubscribed, joined = tonumber(joined),
    poll = tonumber(poll), mode = tonumber(mode), slots = tonumber(slots), permits = tonumber(permits),
    min = tonumber(min), ttl = tonumber(ttl), delay = tonumber(delay), client = client, note = note,
  }
end

local function save_place(r, p, ends)
  call('ZADD', r.untils, string.format('%d', ends), p.owner)
  -- Not %s, which ends a text at a zero byte.
  call('HSET', r.places, p.owner, p.asked .. string.format(' %d %d %d %d %d %d %d %d %d %d ',
    p.tokens, p.unsubscribed, p.joined, p.poll, p.mode, p.slots, p.permits, p.min, p.ttl, p.delay)
    .. p.client .. ' ' .. p.note)
end

local function channel(r, client) return string.match(r.record, '^[^{]*') .. 'wake:' .. client end

-- Publishes a message for the client. Reports false if nobody is subscribed. A cluster passes it on to all
-- servers.
local function publish(r, client, message)
  local n = redis.pcall('PUBLISH', channel(r, client), message)
  return type(n) ~= 'number' or n > 0
end

-- Recalls the place that has come near, if its waiter was to confirm it late: see Rules.Recall. Where the user may
-- not publish, it lasts as long as it did.
local function recall(r)
  local owner = call('ZRANGE', r.queue, FAR - 1, FAR - 1)[1]
  local p = owner and place(r, owner)
  if p and tonumber(call('ZSCORE', r.untils, owner) or 0) > now + life(p.poll, FAR)
    and type(redis.pcall('PUBLISH', channel(r, p.client), 'a ' .. owner)) == 'number' then
    call('ZADD', r.untils, now + life(p.poll, 0), owner)
  end
end

-- Removes a place. Reports whether there was one.
local function leave(r, owner)
  if r.heads[1] == owner then table.remove(r.heads, 1) else r.heads = {} end
  local there = call('ZREM', r.queue, owner) == 1
  call('ZREM', r.untils, owner)
  call('HDEL', r.places, owner)
  recall(r)
  return there
end

-- Returns when the place of the head ends. After the clock was set back no place lasts longer than one
-- that was confirmed now, and none that is near longer than one that need not be recalled.
local function ends_at(r, p)
  local ends, most = tonumber(call('ZSCORE', r.untils, p.owner) or 0), now + life(p.poll, FAR)
  if ends <= most then return ends end
  for i, owner in ipairs(call('ZRANGE', r.queue, '0', '-1')) do
    local longest = i <= FAR and most or now + life(p.poll, 8 * FAR)
    if tonumber(call('ZSCORE', r.untils, owner) or 0) > longest then call('ZADD', r.untils, longest, owner) end
  end
  return most
end

-- Grants the hold to the head. Until its first renewal the hold is a claim, which lasts as long as
-- the place would have, so that a hundred dead winners together do not delay the others for longer
-- than one (P7).
local function hand_over(r, p, ends)
  local claim = math.min(math.max(ends - now, math.floor(p.poll / 2)), 2 * p.poll, p.ttl)
  local h = grant(r, p, claim, 1)
  h.long = true -- others are likely to wait
  leave(r, p.owner)
  table.insert(winners, {hold = h, claim = claim, asked = p.asked, unsubscribed = p.unsubscribed == '1'})
end

-- Settles the name: ends what has expired, and grants what is free to those who come first. Of the
-- queue it looks at the head only, and not even at that while a hold keeps everybody out. Reports
-- whether the end of a closed hold was moved forward, because the clock was set back.
local function settle(r)
  local holds, sooner = r.holds, false
  for i = #holds, 1, -1 do
    local h = holds[i]
    if h.owner ~= '' and now >= h.expires then
      h.owner, h.client, h.expires = '', '', opens(h) -- vanished
    end
    local longest = now + math.max(h.delay, h.min)
    if h.owner == '' and h.expires > longest then -- the clock was set back since
      h.expires, sooner = longest, true
    end
    if h.owner == '' and now >= h.expires then table.remove(holds, i) end
  end
  while not blocked(r) and head(r) do
    local p = place(r, head(r))
    local ends = p and ends_at(r, p)
    if not p or now > ends then
      leave(r, head(r))
    elseif closed == 0 and admits(r, p) then
      hand_over(r, p, ends)
    else
      break
    end
  end
  return sooner
end

-- Returns the owner of the place that ends first, if it has ended, or nil.
local function lapsed(r)
  local first = call('ZRANGE', r.untils, '0', '0', 'WITHSCORES')
  if first[1] and now > tonumber(first[2]) then return first[1] end
end

-- Drops places that have ended from the front of the queue.
local function drop_heads(r)
  while head(r) and now > tonumber(call('ZSCORE', r.untils, head(r)) or 0) do leave(r, head(r)) end
end

-- A hold is a member of the record, "h:OWNER TTL DELAY CLIENT MORE NOTE". Its score is when it expires,
-- less its TTL: thus idle.lua writes one number thrice. A closed hold has no owner any more, but keeps others out until it ends. MORE is "" if the hold is plain:
-- exclusive, with one token, which is the last one, without a minimum, taken by who asked for it, and
-- nobody waits. Thus take.lua need not read this file; a renewal changes a number; and a plain hold is
-- released by ZREM of its member, without a script. If somebody comes to wait, MORE is added, so that
-- ZREM finds nothing, and the release hands the name over.
local function encode(r, h)
  local plain = not h.long and h.mode == EXCLUSIVE and h.owner ~= '' and h.min == 0 and h.claim == 0
    and h.token == r.last and h.taken == r.last and h.block_end == r.last
  local more = plain and '' or string.format('%d,%d,%d,%d,%d,%d,%d,%d',
    h.mode, h.slots, h.permits, h.min, h.token, h.taken, h.claim, h.block_end)
  -- Not %s, which ends a text at a zero byte.
  return table.concat({'h:' .. h.owner, string.format('%d %d', h.ttl, h.delay), h.client, more, h.note}, ' ')
end

local function decode(r, fields)
  r.last, r.ends, r.tombstones_end, r.holds, r.heads, r.stored = 0, 0, 0, {}, {}, {}
  for i = 1, #fields, 2 do
    local member, score = fields[i], tonumber(fields[i + 1])
    r.stored[member] = score
    local kind = string.sub(member, 1, 2)
    if kind == 'e:' then
      r.last, r.ends = score, tonumber(string.sub(member, 3))
    elseif kind == 't:' then
      r.tombstones_end = score
    else
      local owner, ttl, delay, client, more, note =
        string.match(member, '^h:([^ ]*) (%d+) (%d+) ([^ ]*) ([^ ]*) (.*)$')
      if not owner then
        error('another program, or another version of Holdfast, has written this lock: ' ..
          'use one version, or delete the key when nobody holds it', 0)
      end
      local h = {
        owner = owner, client = client, ttl = tonumber(ttl), delay = tonumber(delay), note = note, expires = score + ttl,
        mode = EXCLUSIVE, slots = 0, permits = 0, min = 0, claim = 0,
      }
      if more ~= '' then
        local n = {string.match(more, '^(%d),(%d+),(%d+),(%d+),(%d+),(%d+),(%d),(%d+)$')}
        for j = 1, 8 do n[j] = tonumber(n[j]) end
        h.mode, h.slots, h.permits, h.min, h.token, h.taken, h.claim, h.block_end = unpack(n)
        h.long = true
      end
      table.insert(r.holds, h)
    end
  end
  for _, h in ipairs(r.holds) do
    if not h.token then h.token, h.taken, h.block_end = r.last, r.last, r.last end
  end
  table.sort(r.holds, function(a, b) return a.token < b.token end) -- in the order of the grants
end

-- Runs a command with many arguments, some at a time.
local function run(command, key, args)
  for i = 1, #args, 1000 do call(command, key, unpack(args, i, math.min(i + 999, #args))) end
end

-- A name's keys end by themselves (P9), IDLE after the last use: if the clock is set back by less than
-- that, the last token is still known, and tokens grow (P3). They are kept for longer, so that their
-- end need not be set every time.
local IDLE = 600000000

-- Reports whether the keys would end too early after that.
local function short(r, ends) return r.ends < ends + IDLE end

-- Writes what has changed in the record, and keeps the keys until the time given, at least.
local function write(r, until_then)
  -- While nothing is granted there may be places and no hold. The record must not look idle then (P8): idle.lua.
  if closed ~= 0 and not r.holds[1] and head(r) then
    r.tombstones_end = math.max(r.tombstones_end, now + math.max(1, closed))
  end
  local ends = math.max(now, r.last, r.tombstones_end, until_then or 0)
  for _, h in ipairs(r.holds) do ends = math.max(ends, opens(h)) end
  local extend = short(r, ends) or r.first_place
  if short(r, ends) then r.ends = ends + 2 * IDLE end
  local before, changed, removed = r.stored, {}, {}
  r.stored = {['e:' .. string.format('%d', r.ends)] = r.last}
  if r.tombstones_end > now then r.stored['t:'] = r.tombstones_end end
  for _, h in ipairs(r.holds) do r.stored[encode(r, h)] = h.expires - h.ttl end
  for member, score in pairs(r.stored) do
    if before[member] ~= score then
      table.insert(changed, string.format('%d', score))
      table.insert(changed, member)
    end
  end
  for member in pairs(before) do
    if not r.stored[member] then table.insert(removed, member) end
  end
  run('ZADD', r.record, changed) -- first: without a member the key, and its end, would be gone
  run('ZREM', r.record, removed)
  if extend then
    local ms = string.format('%d', math.ceil((r.ends - now) / 1000))
    for _, key in ipairs({r.record, r.queue, r.untils, r.places}) do call('PEXPIRE', key, ms) end
    r.first_place = false
  end
end

-- Returns '1' if nobody is subscribed to the client's channel, else '0'. Where the user may not ask,
-- it returns '0'. A client of a cluster, whose name begins so, may be subscribed elsewhere.
local function unsubscribed(r, client)
  if string.sub(client, 1, 1) == '~' then return '1' end
  local n = redis.pcall('PUBSUB', 'NUMSUB', channel(r, client))
  return n[2] == 0 and '1' or '0'
end

-- Writes the record, and then tells the winners: a write may fail, and nobody may trust a hold that
-- is not in the store (P1). Dead winners are skipped (P7): those whose clients were subscribed when
-- they asked last, and are not now. A client whose connections broke may ask for a place before it has
-- subscribed again. Nobody is subscribed then, but the client lives: it keeps its place (P8), and learns
-- of its grant by its next request.
local function commit(r)
  write(r)
  while #winners > 0 do
    local granted, dead = winners, false
    local contended = head(r) and 1 or 0
    winners = {}
    for _, w in ipairs(granted) do
      local h = w.hold
      local message = string.format('g %d %d ', h.token, w.claim) .. w.asked ..
        string.format(' %d %d ', block(h), contended) .. h.owner
      if not publish(r, h.client, message) and not w.unsubscribed then
        local _, at = held(r, h.owner)
        table.remove(r.holds, at)
        dead = true
      end
    end
    if dead then
      settle(r)
      write(r)
    end
  end
end

-- Returns the keys of item i.
local function keys(i)
  i = KEYS_OF_A_NAME * (i - 1)
  return {record = KEYS[i + 1], queue = KEYS[i + 2], untils = KEYS[i + 3], places = KEYS[i + 4], gone = KEYS[i + 5]}
end

-- Returns the state of item i, settled. Fields are those of its record, if they have been read.
local function read(i, fields)
  local r = keys(i)
  decode(r, fields or call('ZRANGE', r.record, '0', '-1', 'WITHSCORES'))
  if settle(r) or #winners > 0 then commit(r) end
  return r
end

-- Leaves a tombstone: for a while, requests and releases of the owner are answered with this (P6).
-- It takes the room of two that have ended.
local function leave_tombstone(r, owner, why, us)
  call('ZREM', r.gone, NOT_HELD .. ':' .. owner, BROKEN .. ':' .. owner)
  local first = call('ZRANGE', r.gone, '0', '1', 'WITHSCORES')
  for i = 1, #first, 2 do
    if now >= tonumber(first[i + 1]) then call('ZREM', r.gone, first[i]) end
  end
  call('ZADD', r.gone, now + us, why .. ':' .. owner)
  r.tombstones_end = math.max(r.tombstones_end, now + us)
  call('PEXPIRE', r.gone, string.format('%d', math.ceil((r.tombstones_end - now) / 1000)))
end

-- Returns what the tombstone of an owner says, BROKEN or NOT_HELD, or nil if there is none.
local function tombstone(r, owner)
  if now >= r.tombstones_end then return end
  for _, why in ipairs({NOT_HELD, BROKEN}) do
    if now < tonumber(call('ZSCORE', r.gone, why .. ':' .. owner) or 0) then return why end
  end
end

-- A server whose memory is full (OOM) refuses the first write of a script if that needs memory,
-- and lets all others pass. Renewals and releases must go on then, so they begin with a write that
-- needs no memory and changes nothing. It may fail: another program may have overwritten the record.
local function write_when_full() redis.pcall('ZREM', KEYS[1], '') end

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
