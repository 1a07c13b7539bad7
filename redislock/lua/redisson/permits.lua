-- Returns ids, of 16 bytes each, as a list.
local function ids(all)
  local list = {}
  for i = 1, #all, 16 do list[#list + 1] = string.sub(all, i, i + 15) end
  return list
end

-- Returns how many permits are free, nil if the name is, and false if it is something else. That is also a number
-- with which Redis cannot count: an error would end the script before it comes to the other names of the batch.
local function free(lock, taken)
  local kind, other = call('TYPE', lock).ok, call('TYPE', taken).ok
  if other ~= 'none' and other ~= 'zset' then return false end
  if kind == 'none' then return nil end
  local value = kind == 'string' and call('STRLEN', lock) <= 15 and call('GET', lock)
  return value and (value == '0' or string.find(value, '^-?[1-9]%d*$')) and tonumber(value) or false
end

-- Reports whether an owner has all of its permits.
local function has(taken, list, now)
  for _, id in ipairs(list) do
    local ends = tonumber(call('ZSCORE', taken, id) or 0)
    if ends <= now then return false end
  end
  return true
end

local function keep(taken, list, ends)
  for _, id in ipairs(list) do call('ZADD', taken, text(ends), id) end
end

-- Gives permits back and tells of it.
local function give(lock, n, publish, channel)
  local value = call('INCRBY', lock, n)
  if value > 0 then call(publish, channel, text(value)) end
end

-- Gives back permits that have ended.
local function reap(lock, taken, now, publish, channel)
  local ended = call('ZRANGEBYSCORE', taken, '0', text(now), 'LIMIT', '0', '1000')
  if #ended > 0 then
    call('ZREM', taken, unpack(ended))
    give(lock, #ended, publish, channel)
  end
end
