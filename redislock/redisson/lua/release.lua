-- KEYS: the semaphore and its channel. ARGV: how many permits, and the command that publishes. Replies 1,
-- or 0 if there is no semaphore.
local free, wrong = number(KEYS[1])
if wrong then return wrong end
if not free then return 0 end
call(ARGV[2], KEYS[2], decimal(call('INCRBY', KEYS[1], ARGV[1])))
return 1
