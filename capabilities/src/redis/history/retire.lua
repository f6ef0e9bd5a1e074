-- Prepares the removal of an empty thread from the index: its next append registers it again, with another token than
-- ARGV[2]. Returns whether the thread may be removed.
if messages > 0 then
  return 0
end
redis.call('HDEL', THREAD, 'i')
refuse(ARGV[2])
return 1
