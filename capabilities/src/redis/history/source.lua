-- Returns a part of the thread for a fork. ARGV: channel, up to, after, maximum messages, bytes after which the part ends.
-- Returns a state that changes with every removal (the number of the last change and the thread's token), the greatest number,
-- the generation and an array of messages.
local to, from = ARGV[2], '(' .. ARGV[3]
local messages_max, bytes_max = tonumber(ARGV[4]), tonumber(ARGV[5])
local CHUNK = 8
local part, size = {}, 0
repeat
  local chunk = redis.call('ZRANGEBYSCORE', MESSAGES, from, to, 'LIMIT', 0, CHUNK)
  for _, message in ipairs(chunk) do
    table.insert(part, message)
    size = size + #message
    from = '(' .. string.match(message, '^%-?%d+')
  end
until #chunk < CHUNK or #part >= messages_max or size >= bytes_max
return {changed, redis.call('HGET', THREAD, 'i') or '', last, generation or '', part}
