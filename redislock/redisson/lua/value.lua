-- The scripts of this package begin with this.
local call = redis.call
local function decimal(n) return string.format('%.0f', n) end

-- Returns the number at a key, or nil if there is no key; and an error if there is something else. The third key of a
-- semaphore is there if the name is that of permits with leases.
local function number(key)
  if KEYS[3] and call('EXISTS', KEYS[3]) == 1 then
    return nil, redis.error_reply('WRONGTYPE the permits of that name are those of an RPermitExpirableSemaphore')
  end
  local text = call('GET', key)
  if not text then return nil end
  local n = tonumber(text)
  if not n then return nil, redis.error_reply('WRONGTYPE the key has a text that is no number') end
  return n
end
