-- KEYS: the latch and its channel. ARGV: the command that publishes. Replies 1, or 0 if there is none. It tells
-- that the latch is open: by what Redisson tells when it deletes one, its own clients wait on for ever.
local count, wrong = number(KEYS[1])
if wrong then return wrong end
if not count then return 0 end
call('DEL', KEYS[1])
call(ARGV[1], KEYS[2], '0')
return 1
