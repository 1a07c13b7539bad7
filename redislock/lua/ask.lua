-- KEYS: those of the name. ARGV: the member of a plain hold, and the rest of the request,
-- "MODE SLOTS PERMITS MIN ASKED POLL UNFAIR QUEUE TOKENS": unfair and queue (may take a place) are 1 or 0,
-- tokens is how many to reserve. With a third argument idle.lua runs first.
-- Replies {OK, token, whether it is a plain hold, tokens reserved, whether others are queued},
-- {HELD, queued, opens in, note, token, ahead, closed}, {MISMATCH, slots}, or {why not}.
local owner, ttl, delay, client, note = string.match(ARGV[1], '^h:([^ ]*) (%d+) (%d+) ([^ ]*)  (.*)$')
local mode, slots, permits, min, asked, poll, unfair, queue, tokens =
  string.match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d) (%d) (%d+)$')
local req = {
  owner = owner, client = client, note = note, mode = tonumber(mode), slots = tonumber(slots),
  permits = tonumber(permits), min = tonumber(min), ttl = tonumber(ttl), delay = tonumber(delay),
  poll = tonumber(poll), tokens = tonumber(tokens), asked = asked,
}

if fields.err then return {err = fields.err} end -- nothing is written to another program's key
local r = read(1, fields)

local function granted(h)
  return {OK, h.token, r.stored[ARGV[1]] and 1 or 0, block(h), head(r) and 1 or 0}
end

local h = held(r, owner)
if h then
  h.expires, h.claim = now + h.ttl, 0
  write(r)
  return granted(h)
end

local dead = lapsed(r)
if dead then drop_heads(r) end
local ahead = call('ZRANK', r.queue, owner)
local p = ahead and place(r, owner)
if not p then
  -- A request that was withdrawn may arrive after that. It must not take effect (P6).
  local why = tombstone(r, owner)
  if why then return {why} end
  local first = r.holds[1] or head(r) and place(r, head(r))
  if first and ((first.mode == SLOT) ~= (req.mode == SLOT) or first.slots ~= req.slots) then
    return {MISMATCH, first.slots} -- P10
  end
end

-- The name is settled, so all that are queued have to wait, and a new request waits behind them,
-- unless it is unfair (P8).
if closed == 0 and admits(r, req) and (unfair == '1' or not head(r)) then
  if p then leave(r, owner) end
  h = grant(r, req, req.ttl, 0)
  h.long = head(r) -- ZREM must not find it
  write(r)
  return granted(h)
end

if p then
  p.asked, p.tokens, p.unsubscribed = req.asked, req.tokens, unsubscribed(r, p.client)
  local ends = now + life(p.poll, ahead)
  save_place(r, p, ends)
  if short(r, ends) then write(r, ends) end
elseif queue == '1' then
  for _ = 1, 2 do -- two that have ended make room for one, so that the queue does not grow (P9)
    dead = dead and lapsed(r)
    if dead then leave(r, dead) end
  end
  local behind = call('ZRANGE', r.queue, '-1', '-1', 'WITHSCORES')
  ahead = behind[1] and call('ZCARD', r.queue) or 0
  req.joined, req.unsubscribed = now, unsubscribed(r, req.client)
  local ends = now + life(req.poll, ahead)
  call('ZADD', r.queue, (behind[2] or 0) + 1, owner)
  save_place(r, req, ends)
  r.heads, r.first_place = {}, ahead == 0
  if r.first_place or short(r, ends) or not (r.holds[1] and r.holds[1].long) then
    for _, h in ipairs(r.holds) do h.long = true end -- ZREM must not find them
    write(r, ends)
  end
end

local queued = ahead and p == nil and ahead + 1 or call('ZCARD', r.queue)
local opens_in, holder, token = 0, '', 0
for _, h in ipairs(r.holds) do
  local at = h.expires
  if h.owner ~= '' then
    holder, token, at = h.note, h.token, opens(h)
  end
  if opens_in == 0 or at - now < opens_in then opens_in = at - now end
end
return {HELD, queued, math.max(opens_in, closed), holder, token, ahead or 0, closed}
