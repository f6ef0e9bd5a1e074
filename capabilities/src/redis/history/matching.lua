-- Scans a part of the thread backwards for the newest messages that match a filter.
--
-- ARGV: channel, 'use' if this counts as a use of the thread, the number before which to scan or '+inf', maximum messages to
-- return, maximum messages to scan, bytes after which the scan ends, maximum bytes of a page, how many of these are left, 1 if the
-- filter has include selectors, then four lists, each after its count: included agents, included roles, excluded agents,
-- excluded roles.
--
-- Returns a state that changes with every removal (the number of the last change and the thread's token), the number before
-- which to continue (empty at the end), the messages, newest first, the thread's last number, its generation, and 1 if the next
-- match does not fit into the page. Damaged messages always match, so that the caller reports them.
local before, messages_max, looks_max, bytes_max = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local page_max, page_left = tonumber(ARGV[7]), tonumber(ARGV[8])
local includes = ARGV[9] == '1'
-- A group of messages is copied, so it is small in a thread that is larger than a page.
local CHUNK_MIN, CHUNK_MAX, CHUNK_BYTES = 8, 128, 65536
if bytes > page_max then
  CHUNK_MIN, CHUNK_MAX = 4, 4
end

local at = 10
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
local found, looked, size, chunk, ended, more = {}, 0, 0, CHUNK_MIN, messages_max == 0, 0
while not ended and more == 0 and #found < messages_max and looked < looks_max and size < bytes_max do
  local part = redis.call('ZREVRANGEBYSCORE', MESSAGES, from, '-inf', 'LIMIT', 0, chunk)
  local part_size, part_looked = 0, 0
  for _, message in ipairs(part) do
    before = string.match(message, '^%-?%d+')
    part_looked = part_looked + 1
    part_size = part_size + #message
    if stays(message) then
      page_left = page_left - (select(2, header(message)) or 0)
      if page_left < 0 then
        more = 1
        break
      end
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
return {changed, redis.call('HGET', THREAD, 'i') or '', not ended and before, found, last, generation or '', more}
