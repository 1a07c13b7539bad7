-- Begins the life that the server has now. KEYS: that in which it remembers it. ARGV: the longest that a hold lasts.
-- Replies for how long nothing is granted.
--
-- A server that has no such key has forgotten nothing since its start, if it was never a replica, and nobody has
-- flushed it, and it has evicted nothing. Else it may have forgotten holds until this moment.
local function counts(info, pattern) return string.find(redis.call('INFO', info), pattern) end

local NEVER_PROMOTED = '\nmaster_replid2:0+\r'
local life = life_now()
local known, opens, before = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) (%d+) (%d+)$')
local longest = math.max(before or 0, ARGV[1])
if known and string.sub(known, 1, 16) == string.sub(life, 1, 16) and counts('replication', NEVER_PROMOTED) then
  known = life -- its first replica has come, or its last one went long ago: then it renames its history
end
if known ~= life or opens - now > tonumber(before) then
  local since = now
  if not known and counts('replication', NEVER_PROMOTED) and counts('stats', '\nevicted_keys:0\r')
    and not counts('commandstats', '\ncmdstat_flush') and not counts('commandstats', '\ncmdstat_swapdb') then
    -- P1: the uptime is the difference of two whole seconds, so it may be almost one too long.
    local uptime = string.match(redis.call('INFO', 'server'), '\nuptime_in_seconds:(%d+)')
    since = now - 1000000 * math.max(0, uptime - 1)
  end
  opens = since + longest
elseif tonumber(opens) > now then
  opens = opens + longest - before
end
redis.call('SET', KEYS[1], string.format('%s %d %d', life, opens, longest))
return math.max(0, opens - now)
