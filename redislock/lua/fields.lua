-- What the record has. It is an error if the key is of another type.
local fields = redis.pcall('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
