-- Stages messages of a fork, in the slot of its target. KEYS: messages, runs. ARGV: milliseconds after which an unfinished
-- fork expires, then the number, the message and the run entry of each.
redis.call('ZCARD', KEYS[1])
redis.call('ZCARD', KEYS[2])
for at = 2, #ARGV, 3 do
  redis.call('ZADD', KEYS[1], ARGV[at], ARGV[at + 1])
  if ARGV[at + 2] ~= '' then
    redis.call('ZADD', KEYS[2], 0, ARGV[at + 2])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return redis.call('ZCARD', KEYS[1])
