-- Names a thread in the index of the namespace, and answers the token that stands for this registration.
--
-- KEYS: 1 the threads that may hold messages, in the order of their bytes; 2 all threads and the token of each, empty
-- for one that has left the listing; 3 a count that tells tokens of one instant apart. ARGV: thread, a token that was
-- refused.
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
