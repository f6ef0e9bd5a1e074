-- Registers a thread in the index of the namespace, and returns the token of the registration.
--
-- KEYS: 1 the threads that may have messages, in byte order; 2 all threads with their tokens, empty for a thread that has left
-- the listing; 3 a counter that distinguishes tokens of the same instant. ARGV: thread, a token that was refused.
redis.call('ZCARD', KEYS[1])
local token = redis.call('HGET', KEYS[2], ARGV[1])
if token and token ~= '' and token ~= ARGV[2] then
  return token
end
token = int(now_ms()) .. '-' .. int(redis.call('INCR', KEYS[3]))
redis.call('PEXPIRE', KEYS[3], 86400000)
redis.call('HSET', KEYS[2], ARGV[1], token)
redis.call('ZADD', KEYS[1], 0, ARGV[1])
return token
