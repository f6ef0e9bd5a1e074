-- Removes messages: by number, after a position, or from the end.
--
-- KEYS[7] are the messages that a pop with this idempotency key keeps. ARGV: channel, token, the number that the thread's last
-- one must be or nothing, its generation or nothing, the number that the thread must have reached or nothing, its generation
-- or nothing, idempotency key or nothing, digest, maximum bytes of the returned messages, milliseconds for which a pop keeps
-- them, fencing token or nothing, then 'numbers' and the numbers in order, 'after' and the position, or 'newest' and the count.
--
-- Returns {0, '<removed> <last> <numbers>', generation, messages}; {1} if the thread is not registered in the index; {2} if the
-- key was used for another removal; {3} if the numbers are exhausted; {4, last, generation} if the thread has another last
-- number or generation; {5, last, generation} if it has not reached the position; {6, bytes} if the messages are too large.
local token, key, digest = ARGV[2], ARGV[7], ARGV[8]
local bytes_max, fencing, kind, argument = tonumber(ARGV[9]), ARGV[11], ARGV[12], ARGV[13]
local CHUNK = 16

if key ~= '' then
  local answered = first_result('d' .. key, digest)
  if answered == false then
    return {2}
  elseif answered then
    raise_fence(fencing)
    return {0, answered, generation or '', redis.call('LRANGE', KEYS[7], 0, -1)}
  end
  -- Checks the types of both keys before the first write.
  redis.call('LLEN', KEYS[7])
  redis.call('ZCARD', POPPED)
end
if is_fenced_off(fencing) then
  return fenced_off()
end
if not is_last(ARGV[3], ARGV[4]) then
  return {4, last, generation or ''}
end
if not has_reached(ARGV[5], ARGV[6]) then
  return {5, last, generation or ''}
end

-- Finds the messages, or counts them for a rewind.
local found, size, removed = {}, 0, 0
local function find(message)
  table.insert(found, message)
  size = size + select(2, header(message))
end
if kind == 'after' then
  removed = redis.call('ZCOUNT', MESSAGES, '(' .. argument, '+inf')
elseif kind == 'newest' then
  local wanted, newest = math.min(tonumber(argument), messages), {}
  while #found < wanted and size <= bytes_max do
    local chunk = redis.call('ZREVRANGE', MESSAGES, #found, math.min(#found + CHUNK, wanted) - 1)
    if #chunk == 0 then
      break
    end
    for _, message in ipairs(chunk) do
      find(message)
    end
  end
  for at = #found, 1, -1 do
    table.insert(newest, found[at])
  end
  found = newest
else
  for at = 13, #ARGV do
    local message = redis.call('ZRANGEBYSCORE', MESSAGES, ARGV[at], ARGV[at])[1]
    if message and size <= bytes_max then
      find(message)
    end
  end
end
if size > bytes_max then
  return {6, size}
end
removed = math.max(removed, #found)
if removed == 0 and key == '' then
  raise_fence(fencing)
  return {0, '0 ' .. int(last) .. ' ', generation or '', {}}
end
if last >= SEQ_MAX then
  return {3}
end
if not indexed(token) then
  return {1}
end

local numbers = {}
local function forget(message)
  local seq, message_size, run = header(message)
  bytes = bytes - message_size
  if run ~= '' then
    redis.call('ZREM', RUNS, run_entry(run, seq, int(message_size)))
  end
  return seq
end
for _, message in ipairs(found) do
  local seq = int(forget(message))
  redis.call('ZREMRANGEBYSCORE', MESSAGES, seq, seq)
  table.insert(numbers, seq)
end
if kind == 'after' and removed == messages and removed > 0 then
  redis.call('UNLINK', MESSAGES, RUNS)
  bytes = 0
elseif kind == 'after' and removed > 0 then
  local from = '(' .. argument
  repeat
    local chunk = redis.call('ZRANGEBYSCORE', MESSAGES, from, '+inf', 'LIMIT', 0, CHUNK)
    for _, message in ipairs(chunk) do
      from = '(' .. int(forget(message))
    end
  until #chunk < CHUNK
  redis.call('ZREMRANGEBYSCORE', MESSAGES, '(' .. argument, '+inf')
end
numbers = table.concat(numbers, ',')
if removed > 0 then
  messages = messages - removed
  happened(kind == 'after' and 5 or 4, removed, 0, 0, kind == 'after' and argument or numbers)
end
local answer = string.format('%.0f %.0f ', removed, last) .. numbers
if key ~= '' then
  redis.call('HSET', THREAD, 'd' .. key, digest .. answer)
  if kind == 'newest' and #found > 0 then
    for _, message in ipairs(found) do
      redis.call('RPUSH', KEYS[7], message)
    end
    local now = now_ms()
    redis.call('PEXPIRE', KEYS[7], ARGV[10])
    redis.call('ZREMRANGEBYSCORE', POPPED, '-inf', int(now))
    redis.call('ZADD', POPPED, int(now + tonumber(ARGV[10])), KEYS[7])
    redis.call('PEXPIRE', POPPED, ARGV[10])
  end
end
save(fencing)
if removed > 0 then
  announce()
end
return {0, answer, generation, found}
