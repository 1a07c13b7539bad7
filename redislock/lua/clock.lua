-- Every script begins with this. Times and durations are microseconds of the
-- server's clock: below 2^53, so they are exact in Lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- ms for which a record outlives its last use
local IDLE = 600000

-- What is kept for a record's PX if the last that it speaks of is at this time: it
-- ends by itself (P9), but not before a token of a clock that is set back by less
-- than IDLE would be lower (P3).
local function life(last)
  return string.format('%d', math.ceil(math.max(0, last - now) / 1000) + IDLE)
end
