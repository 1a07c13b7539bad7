-- KEYS: the latch and its channel. ARGV: its count, and the command that publishes. Replies 1, or 0 if there
-- is one.
local count, wrong = number(KEYS[1])
if wrong then return wrong end
if count then return 0 end
call('SET', KEYS[1], ARGV[1])
call(ARGV[2], KEYS[2], '1')
return 1
