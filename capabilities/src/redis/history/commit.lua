-- Makes the staged messages of a fork the thread's messages. KEYS[7] and KEYS[8] are the staged messages and runs. ARGV:
-- channel, token, the thread's greatest number when they were staged, count, bytes, fencing token or nothing. Returns {0, last, generation}; {1} if the thread is
-- not registered in the index; {2} if the thread has messages; {3} if the thread has assigned numbers since; {4} if the
-- staged messages no longer exist; {5} if the numbers are exhausted.
local token, base, count = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if is_fenced_off(ARGV[6]) then
  return fenced_off()
end
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
save(ARGV[6])
announce()
return {0, last, generation}
