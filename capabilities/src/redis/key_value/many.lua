-- KEYS: revisions, expiries, values, meta
-- ARGV: size at which the result ends, then the keys
-- Returns the generation and the entries: revision, expiry and value, or false for an absent key. Ends before the entry whose value
-- exceeds the size.
local now, bytes, entries = now_ms(), 0, {}
for i = 2, #ARGV do
  local revision = redis.call('ZSCORE', KEYS[1], ARGV[i])
  local expires = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if not revision or (expires and tonumber(expires) <= now) then
    entries[i - 1] = false
  else
    bytes = bytes + redis.call('HSTRLEN', KEYS[3], ARGV[i])
    if bytes > tonumber(ARGV[1]) then break end
    entries[i - 1] = {revision, expires, redis.call('HGET', KEYS[3], ARGV[i])}
  end
end
return {redis.call('HGET', KEYS[4], 'generation'), entries}
