-- Makes what a fork laid aside into the thread's messages. KEYS[7] and KEYS[8] hold them and their runs. ARGV: channel,
-- token, the greatest number the thread had given when they were numbered, count, bytes. Answers {0, last}; {1} where
-- the index does not name the thread yet; {2} where the thread holds messages; {3} where it has given other numbers
-- since; {4} where what was laid aside is gone; {5} at the cap.
local token, base, count = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if messages > 0 then
  return {2}
end
if last ~= base then
  return {3}
end
if redis.call('ZCARD', KEYS[7]) ~= count then
  return {4}
end
local has_runs = redis.call('ZCARD', KEYS[8]) > 0
if last + count > SEQ_MAX then
  return {5}
end
if not indexed(token) then
  return {1}
end
redis.call('RENAME', KEYS[7], MESSAGES)
redis.call('PERSIST', MESSAGES)
if has_runs then
  redis.call('RENAME', KEYS[8], RUNS)
  redis.call('PERSIST', RUNS)
end
last, messages, bytes = last + count, count, tonumber(ARGV[5])
save()
announce()
return {0, last}
