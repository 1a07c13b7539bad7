-- KEYS: the semaphore. ARGV: how many permits. Replies 1 if they were free, and 0 if not.
local free, wrong = number(KEYS[1])
if wrong then return wrong end
if not free or free < tonumber(ARGV[1]) then return 0 end
call('DECRBY', KEYS[1], ARGV[1])
return 1
