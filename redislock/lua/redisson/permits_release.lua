-- Gives permits back. KEYS: those of each hold's name. ARGV for each: its ids; the command that publishes;
-- what the tombstone says, and for how long (0: none). Replies OK, NOT_HELD or BROKEN for each.
local replies, now = {}, wall()
write_when_full()
for i = 1, #ARGV / 4 do
  local lock, taken, channel, gone = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local list = ids(ARGV[4 * i - 3])
  replies[i] = NOT_HELD
  if free(lock, taken) then
    if has(taken, list, now) then replies[i] = OK end
    local n = 0
    for _, id in ipairs(list) do n = n + call('ZREM', taken, id) end -- Lua cannot unpack so many as there may be
    if n > 0 then give(lock, n, ARGV[4 * i - 2], channel) end
  end
  if replies[i] ~= OK then replies[i] = why(gone) end
  tombstone(gone, tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i]))
end
return replies
