-- KEYS: record, tombstone of the owner. ARGV: the field and text of a plain hold, and
-- the rest of the request, "MODE SLOTS PERMITS MIN ASKED POLL UNFAIR QUEUE TOKENS":
-- unfair and queue (may take a place) are 1 or 0, tokens is how many to reserve. With a fourth
-- argument idle.lua runs first.
-- Replies {OK, token, whether it is a plain hold, tokens reserved, whether others are queued},
-- {HELD, queued, opens in, note, token}, or {why not}.
local req = {}
req[OWNER] = string.sub(ARGV[1], 3)
req[TTL], req[DELAY], req[CLIENT], req[NOTE] = string.match(ARGV[2], '^0 (%d+) (%d+) ([^ ]*) (.*)$')
local sent, poll, unfair, queue
req[MODE], req[SLOTS], req[PERMITS], req[MIN], sent, poll, unfair, queue, req[TOKENS] =
  string.match(ARGV[3], '^(%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d) (%d) (%d+)$')
for _, i in ipairs({MODE, SLOTS, PERMITS, MIN, TTL, DELAY, TOKENS}) do req[i] = tonumber(req[i]) end
poll, unfair, queue = tonumber(poll), unfair == '1', queue == '1'
local owner = req[OWNER]

local function granted(r, h)
  return {OK, h[TOKEN], r[FIELD] == ARGV[1] and 1 or 0, block(h), #r[QUEUE] > 0 and 1 or 0}
end

local r = read(KEYS[1])
local h = find(r[HOLDS], owner)
if h then
  h[EXPIRES], h[CLAIM] = now + h[TTL], 0
  write(KEYS[1], r)
  return granted(r, h)
end

local p = find(r[QUEUE], owner)
if not p then
  -- Suppose the request was withdrawn, and arrives after that: it must not take effect (P6).
  local why = tombstone(r, KEYS[2])
  if why then return {why} end
  local function other(in_use)
    return (in_use[MODE] == SLOT) ~= (req[MODE] == SLOT) or in_use[SLOTS] ~= req[SLOTS]
  end
  for _, list in ipairs({r[HOLDS], r[QUEUE]}) do
    for _, in_use in ipairs(list) do
      if other(in_use) then return {MISMATCH} end -- P10
    end
  end
end

-- The record is settled, so all that are queued have to wait, and a new request waits behind them,
-- unless it is unfair (P8).
if admits(r, req) and (#r[QUEUE] == 0 or unfair) then
  remove(r[QUEUE], owner)
  h = grant(r, req, req[TTL], 0)
  write(KEYS[1], r)
  return granted(r, h)
end

if p then
  p[SEEN], p[ASKED], p[TOKENS] = now, sent, req[TOKENS]
  p[UNSUBSCRIBED] = unsubscribed(KEYS[1], p[CLIENT])
  write(KEYS[1], r)
elseif queue then
  req[JOINED], req[SEEN], req[ASKED], req[POLL] = now, now, sent, poll
  req[UNSUBSCRIBED] = unsubscribed(KEYS[1], req[CLIENT])
  table.insert(r[QUEUE], req)
  write(KEYS[1], r)
end

local first, note, holder = 0, '', 0
for _, h in ipairs(r[HOLDS]) do
  local at = h[EXPIRES]
  if h[OWNER] ~= '' then
    note, holder, at = h[NOTE], h[TOKEN], opens(h)
  end
  if first == 0 or at - now < first then first = at - now end
end
return {HELD, #r[QUEUE], first, note, holder}
