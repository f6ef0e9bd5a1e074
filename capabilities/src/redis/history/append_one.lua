-- Appends one message without a run and without a fencing token to a thread that is registered in the index and has neither a time
-- to live nor a fence.
--
-- KEYS: the thread's hash, its messages. ARGV: size and body. Returns the number of the message and the generation, or 0
-- for any other thread, another format, or exhausted numbers.
local head = redis.call('HMGET', KEYS[1], 's', 'n', 'b', 'i', 'e', 'w', 'f', 'g', 'x')
if not head[4] or head[5] or not supported(head[7]) or not head[8] or head[9] then
  return 0
end
local seq, size = head[1] + 1, ARGV[1]
if seq > 9007199253692416 then
  return 0
end
local number, bytes = int(seq), int(head[3] + size)
redis.call('ZADD', KEYS[2], number, number .. ' ' .. size .. ' ' .. bytes .. ' 0 \0' .. ARGV[2])
redis.call('HSET', KEYS[1], 's', number, 'n', int(head[2] + 1), 'b', bytes)
if head[6] and tonumber(head[6]) > now_ms() then
  -- The names of the channel and of the hash differ in their last part.
  redis.pcall('PUBLISH', string.sub(KEYS[1], 1, -5) .. 'wake', '')
end
return {seq, head[8]}
