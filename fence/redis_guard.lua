do -- The guard of package fence: admits a token, or ends the script before its work.
  local text, mode, retain = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local marks = table.remove(KEYS)
  local stored = redis.call('HMGET', marks, 'exclusive_mark', 'shared_mark')
  -- Below 2^53, so exact. Their text is kept: tostring would round it.
  local token, exclusive, shared = tonumber(text), tonumber(stored[1] or 0), tonumber(stored[2] or 0)
  if not exclusive or not shared then
    return redis.error_reply('ERR the fields exclusive_mark and shared_mark hold no numbers')
  end
  local newest, field, mark = exclusive, 'shared_mark', shared
  if mode == 'exclusive' then newest, field, mark = math.max(exclusive, shared), 'exclusive_mark', exclusive end
  if token < newest then
    return redis.error_reply('HOLDFASTSTALE ' .. string.format('%.0f', newest))
  end
  if token > mark then redis.call('HSET', marks, field, text) end
  if retain ~= '0' then redis.call('PEXPIRE', marks, retain) end
end
