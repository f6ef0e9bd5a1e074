-- Appends messages.
--
-- ARGV: channel, token, idempotency key, digest, time to live, 1 if use renews it, the number that the thread's last one must be
-- or nothing, the generation that the thread must have or nothing, the fencing token or nothing, then size, run and body of each
-- message.
-- Returns {0, first, last, generation}, followed by 1 if the thread allows the fast append; {1} if the thread is not registered in the
-- index; {2} if the key was used for other messages; {3} if the numbers are exhausted; {4, last, generation} if the thread has
-- another last number or generation.

-- The most frequent case, in the fewest steps: no idempotency key, the fencing token that the thread has or none, and an
-- existing thread without a time to live.
local head = redis.call('HMGET', KEYS[1], 's', 'n', 'b', 'i', 'e', 'f', 'g', 'x')
if head[4] and not head[5] and supported(head[6]) and head[7] and ARGV[3] == '' and ARGV[5] == ''
  and (ARGV[7] == '' or ARGV[7] == head[1]) and (ARGV[8] == '' or ARGV[8] == head[7])
  and ARGV[9] == (head[8] or '') then
  local seq, messages, bytes = tonumber(head[1]), tonumber(head[2]), tonumber(head[3])
  local count = (#ARGV - 9) / 3
  if seq + count > 9007199253692416 then
    return {3}
  end
  for at = 11, #ARGV, 3 do
    if ARGV[at] ~= '' then
      -- Checks the types of both keys before the first write, because a script is not rolled back.
      redis.call('ZCARD', KEYS[2])
      redis.call('ZCARD', KEYS[3])
      break
    end
  end
  for at = 10, #ARGV, 3 do
    local size, run = ARGV[at], ARGV[at + 1]
    seq = seq + 1
    bytes = bytes + size
    local number = int(seq)
    redis.call('ZADD', KEYS[2], number, string.format('%s %s %.0f 0 ', number, size, bytes)
      .. run .. '\0' .. ARGV[at + 2])
    if run ~= '' then
      redis.call('ZADD', KEYS[3], 0, run .. '\0' .. string.format('%016.0f %s', seq + 1048576, size))
    end
  end
  redis.call('HSET', KEYS[1], 's', int(seq), 'n', int(messages + count), 'b', int(bytes))
  redis.pcall('PUBLISH', ARGV[1], '')
  if head[8] then
    return {0, seq - count + 1, seq, head[7]}
  end
  return {0, seq - count + 1, seq, head[7], 1}
end
