-- KEYS: the lock and the record of the name. Replies what the lock is, for how many more milliseconds,
-- and the beginning of its value; of our hold its owner, token, note, age and rest.
local r = read(KEYS[2])
local kind = call('TYPE', KEYS[1]).ok
if kind ~= 'string' then return {kind, 0, ''} end
local reply = {kind, call('PTTL', KEYS[1]), call('GETRANGE', KEYS[1], 0, 511)}
if not has(KEYS[1], r.owner) then return reply end
reply[4], reply[5], reply[6], reply[7], reply[8] = r.owner, r.last, r.note, now - r.taken, r.expires - now
return reply
