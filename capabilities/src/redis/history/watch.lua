-- Has the shortest append announce itself for the next ARGV[2] milliseconds; all others do in any case. Answers whether
-- there is such a thread.
if redis.call('EXISTS', THREAD) == 0 then
  return 0
end
redis.call('HSET', THREAD, 'w', int(now_ms() + ARGV[2]))
return 1
