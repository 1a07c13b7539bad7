-- Returns the last token of a record in the form of before, a hash, if nobody holds the name there or
-- waits for it. Else it returns nil: a hold beside one of that form would be a second one (P1).
local function last_of_old_form(key)
  local fields = redis.pcall('HGETALL', key)
  if fields.err then return end
  local last, over = 0, true
  for i = 1, #fields, 2 do
    if fields[i] == 'last' then last = tonumber(string.sub(fields[i + 1], 1, 16)) end
  end
  for i = 1, #fields, 2 do
    local field, text = fields[i], fields[i + 1]
    if string.sub(field, 1, 2) == 'h:' then
      local expires, ttl, delay = string.match(text, '^(%d+) (%d+) (%d+) ')
      if expires == '0' then expires = last + ttl end
      over = over and now >= expires + delay
    elseif field == 'p' then
      local _, holds, queue = unpack(cmsgpack.unpack(text))
      for _, h in ipairs(holds) do -- 7: lock-delay, 9: minimum, 11: taken, 12: expires
        over = over and now >= math.max(h[12] + h[7], h[11] + h[9])
      end
      for _, p in ipairs(queue) do over = over and now > p[11] + 2 * p[13] end -- 11: seen, 13: poll
    elseif field ~= 'last' then
      over = false
    end
  end
  if over then return last end
end

local function in_old_form(key)
  local ok, last = pcall(last_of_old_form, key)
  return ok and last or nil
end
