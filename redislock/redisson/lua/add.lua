-- KEYS: the semaphore and its channel. ARGV: how many permits more, or less, and the command that publishes.
local _, wrong = number(KEYS[1])
if wrong then return wrong end
call(ARGV[2], KEYS[2], decimal(call('INCRBY', KEYS[1], ARGV[1])))
return 1
