-- Scans a part of the thread backwards for the newest messages that match a filter.
--
-- ARGV: channel, 'use' if this counts as a use of the thread, the number before which to scan or '+inf', maximum messages to
-- return, maximum messages to scan, bytes after which the scan ends, 1 if the filter has include selectors, then four lists,
-- each after its count: included agents, included roles, excluded agents, excluded roles.
--
-- Returns a state that changes with every removal (the number of the last change and the thread's token), the number before
-- which to continue (empty at the end), and the messages, newest first. Damaged messages always match, so that the caller
-- reports them.
local before, messages_max, looks_max, bytes_max = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local includes = ARGV[7] == '1'
local CHUNK_MIN, CHUNK_MAX, CHUNK_BYTES = 8, 128, 65536

local at = 8
local function names()
  local set, count = {}, tonumber(ARGV[at])
  for place = at + 1, at + count do
    set[ARGV[place]] = true
  end
  at = at + count + 1
  return set
end
local agents, roles, agents_out, roles_out = names(), names(), names(), names()

local function stays(message)
  local agent, role = string.match(message, '^[^%z]*%z\1([^%z]*)%z([^%z]*)%z')
  if not agent then
    return true
  end
  return (not includes or agents[agent] or roles[role]) and not agents_out[agent] and not roles_out[role]
end

if ARGV[2] == 'use' and renew() then
  save()
end
local from = before == '+inf' and before or '(' .. before
local found, looked, size, chunk, ended = {}, 0, 0, CHUNK_MIN, messages_max == 0
while not ended and #found < messages_max and looked < looks_max and size < bytes_max do
  local part = redis.call('ZREVRANGEBYSCORE', MESSAGES, from, '-inf', 'LIMIT', 0, chunk)
  local part_size, part_looked = 0, 0
  for _, message in ipairs(part) do
    before = string.match(message, '^%-?%d+')
    part_looked = part_looked + 1
    part_size = part_size + #message
    if stays(message) then
      table.insert(found, message)
      if #found == messages_max then
        break
      end
    end
  end
  from = '(' .. before
  ended = #part < chunk and part_looked == #part
  looked, size = looked + part_looked, size + part_size
  -- Reads large messages in small groups, because each is copied.
  chunk = part_size < CHUNK_BYTES and math.min(2 * chunk, CHUNK_MAX) or CHUNK_MIN
end
return {changed, redis.call('HGET', THREAD, 'i') or '', not ended and before, found, last, generation or ''}
