-- Has the shortest append announce itself for the next ARGV[2] milliseconds; all others do in any case. Answers whether
-- that is noted: not where there is no such thread, nor where the server takes no write. Who is not noted has to look, which
-- is no reason to fail.
if redis.call('EXISTS', THREAD) == 0 then
  return 0
end
local noted = redis.pcall('HSET', THREAD, 'w', int(now_ms() + ARGV[2]))
return type(noted) == 'number' and 1 or 0
