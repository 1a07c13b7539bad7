-- Every script begins with this. Times and durations are microseconds of the
-- server's clock: below 2^53, so they are exact in Lua.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
