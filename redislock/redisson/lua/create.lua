-- KEYS: the semaphore and its channel. ARGV: how many permits, the command that publishes, and for how many
-- milliseconds the semaphore lives (0: until it is deleted). Replies 1, or 0 if there is one.
local free, wrong = number(KEYS[1])
if wrong then return wrong end
if free then return 0 end
if ARGV[3] == '0' then
  call('SET', KEYS[1], ARGV[1])
else
  call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
end
call(ARGV[2], KEYS[2], ARGV[1])
return 1
