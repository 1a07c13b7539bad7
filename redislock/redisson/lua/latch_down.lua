-- KEYS: the latch and its channel. ARGV: the command that publishes. Replies the count that is left.
local count, wrong = number(KEYS[1])
if wrong then return wrong end
if not count then return 0 end
count = call('DECR', KEYS[1])
if count > 0 then return count end
call('DEL', KEYS[1])
if count == 0 then call(ARGV[1], KEYS[2], '0') end
return 0
