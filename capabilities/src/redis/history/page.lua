-- Reads messages of a thread that fit into one page, in one snapshot with the thread's last number. Without the functions of
-- thread.lua, because it changes nothing. Most reads need no script; see read.rs.
--
-- KEYS: 1 the thread's hash, 2 its messages. ARGV: 'offset' and the number of messages to skip, 'before' or 'after' and the number
-- that bounds the messages; maximum messages, maximum bytes of the page, maximum bytes of a message. Messages 'before' a number
-- are read backwards.
--
-- Returns 1 if the read extends the thread's time to live, the last number, the generation, 1 if messages were left out because of
-- their bytes, and the messages in the order of the read.
local THREAD, MESSAGES = KEYS[1], KEYS[2]
local kind, from, messages_max = ARGV[1], ARGV[2], tonumber(ARGV[3])
local bytes_max, message_bytes_max = tonumber(ARGV[4]), tonumber(ARGV[5])

local fields = redis.call('HMGET', THREAD, 'f', 's', 'g', 'r', 'n', 'b', 'e')
-- No number: no thread, or one that an erasure removed.
if fields[1] and not supported(fields[1]) then
  return wrong_format(fields[1])
end
local last, ends = tonumber(fields[2] or 0), tonumber(fields[7] or nil)
local messages, bytes = tonumber(fields[5] or 0), tonumber(fields[6] or 0)
local renews = fields[4] == '1' and 1 or 0
-- The clear of an expired thread has the next number, even if no script has recorded it yet.
if ends and messages > 0 and (ends <= now_ms() or redis.call('EXISTS', MESSAGES) == 0) then
  return {renews, last + 1, fields[3] or '', 0, {}}
end

local function read(most)
  if kind == 'offset' then
    return redis.call('ZRANGE', MESSAGES, from, int(from + most - 1))
  elseif kind == 'after' then
    return redis.call('ZRANGEBYSCORE', MESSAGES, from, '+inf', 'LIMIT', 0, most)
  end
  return redis.call('ZREVRANGEBYSCORE', MESSAGES, from, '-inf', 'LIMIT', 0, most)
end

if messages_max == 0 then
  return {renews, last, fields[3] or '', 0, {}}
end
if bytes <= bytes_max then
  return {renews, last, fields[3] or '', 0, read(messages_max)}
end
-- Reads in groups that cannot exceed the page by more than one message, because each message is copied.
local found, size = {}, 0
while #found < messages_max do
  local most = math.min(messages_max - #found, math.floor((bytes_max - size) / message_bytes_max) + 1)
  local part = read(most)
  for _, message in ipairs(part) do
    local number, message_bytes = string.match(message, '^(%-?%d+) (%d+) ')
    if #found > 0 and size + tonumber(message_bytes or 0) > bytes_max then
      return {renews, last, fields[3] or '', 1, found}
    end
    size = size + tonumber(message_bytes or 0)
    table.insert(found, message)
    if kind == 'offset' then
      from = from + 1
    elseif number then
      from = '(' .. number
    else
      -- The caller reports the damaged message.
      return {renews, last, fields[3] or '', 0, found}
    end
  end
  if #part < most then
    break
  end
end
return {renews, last, fields[3] or '', 0, found}
