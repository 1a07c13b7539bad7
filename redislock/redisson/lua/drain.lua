-- KEYS: the semaphore. Replies how many permits were free, of which none is now.
local free, wrong = number(KEYS[1])
if wrong then return wrong end
if not free or free <= 0 then return 0 end
call('DECRBY', KEYS[1], decimal(free))
return free
