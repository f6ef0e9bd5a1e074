-- One step back through the thread to the newest messages that a filter keeps.
--
-- ARGV: channel, 'use' where this counts as a use of the thread, the number before which to look or '+inf', most messages
-- to answer, most to look at, bytes after which the step ends, 1 where only what is included stays, then four lists, each
-- with its count before it: agents and roles that are included, agents and roles that are excluded.
--
-- Answers what changes whenever a message is taken away (the number of the last change and the thread's token), the
-- number before which to go on, nothing at the end, and the messages, newest first. A damaged message is among them whatever
-- the filter, so that the caller reports it.
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
  -- Large messages a few at a time, as each is copied to be looked at.
  chunk = part_size < CHUNK_BYTES and math.min(2 * chunk, CHUNK_MAX) or CHUNK_MIN
end
return {changed, redis.call('HGET', THREAD, 'i') or '', not ended and before, found}
