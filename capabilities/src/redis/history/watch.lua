-- Makes the fast append send notifications for the next ARGV[2] milliseconds; all other writes always do. Returns whether this
-- was recorded: not if the thread does not exist or the server accepts no write. Otherwise the subscriber must poll.
if redis.call('EXISTS', THREAD) == 0 then
  return 0
end
local noted = redis.pcall('HSET', THREAD, 'w', int(now_ms() + ARGV[2]))
return type(noted) == 'number' and 1 or 0
