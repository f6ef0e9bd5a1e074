-- Prepares a thread that holds nothing for leaving the index: its next append registers it again, and not by the token
-- ARGV[2]. Answers whether the thread may leave.
if messages > 0 then
  return 0
end
redis.call('HDEL', THREAD, 'i')
refuse(ARGV[2])
return 1
