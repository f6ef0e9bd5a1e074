-- Removes threads from the listing, or from the whole index if ARGV[1] is 'all'. The other ARGV are pairs of a thread and its
-- token; a thread that was registered again since then stays.
redis.call('ZCARD', KEYS[1])
for at = 2, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[at]) == ARGV[at + 1] then
    redis.call('ZREM', KEYS[1], ARGV[at])
    if ARGV[1] == 'all' then
      redis.call('HDEL', KEYS[2], ARGV[at])
    else
      redis.call('HSET', KEYS[2], ARGV[at], '')
    end
  end
end
return 1
