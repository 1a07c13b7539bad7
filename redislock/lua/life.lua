-- The rule of package life: a server that may have forgotten holds grants nothing until they have ended. The last two
-- of ARGV are the key in which the server remembers its life ("": the rule is off), and the life that the server has
-- now, as this connection knows it ("": it does not). The key has "LIFE OPENS LONGEST": the server that has that
-- life grants from OPENS on, and no hold outlives LONGEST microseconds.
local function life_now()
  local run = string.match(redis.call('INFO', 'server'), '\nrun_id:(%x+)')
  local history = string.match(redis.call('INFO', 'replication'), '\nmaster_replid:(%x+)')
  if not run or not history then error('this server does not tell its run_id and master_replid, so nobody can tell ' ..
    'when it has forgotten holds: set hf.forget=go if that may happen', 0) end
  return string.sub(run, 1, 16) .. string.sub(history, 1, 16)
end

-- For how many microseconds nothing may be granted. -1: until somebody has run live.lua.
local closed = 0
if ARGV[#ARGV - 1] ~= '' then
  local life = ARGV[#ARGV] ~= '' and ARGV[#ARGV] or life_now()
  local memory = redis.pcall('GET', ARGV[#ARGV - 1]) -- it fails if the key's slot has left a node of a cluster
  local known, opens, longest = string.match(type(memory) == 'string' and memory or '', '^(%x+) (%d+) (%d+)$')
  closed = known == life and math.max(0, opens - now) or -1
  if closed > tonumber(longest or 0) then closed = -1 end -- the clock was set back
end
