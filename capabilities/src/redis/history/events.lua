-- Returns the next events after a number, in order. ARGV: channel, after, maximum events, bytes after which the page ends.
-- Returns the generation and an array of arrays: a message, or an event and the remaining messages of the replacement.
local after, events_max, bytes_max = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local CHUNK = 8
if last <= tonumber(after) then
  return {generation or '', {}}
end
local page, size = {}, 0

local function full()
  return #page >= events_max or size >= bytes_max
end

-- Returns an event with the remaining messages of a replacement, or with the message of an update, if it is the message's last.
local function left(event)
  local update, of = string.match(event, '^(%d+) 6 %d+ (%-?%d+) ')
  if update then
    local message = redis.call('ZRANGEBYSCORE', MESSAGES, of, of)[1]
    if not message or string.match(message, '^%-?%d+ %d+ %d+ %d+/(%d+) ') ~= update then
      return nil
    end
    size = size + #message
    return {event, message}
  end
  local number, up_to, placed = string.match(event, '^(%d+) 3 %d+ (%d+) %d+ (%d+) ')
  local shown = {event}
  if number then
    local from, to = int(tonumber(up_to) - placed + 1), up_to
    for _, message in ipairs(redis.call('ZRANGEBYSCORE', MESSAGES, from, to)) do
      if string.match(message, '^%-?%d+ %d+ %d+ (%d+)[/ ]') == number then
        table.insert(shown, message)
        size = size + #message
      end
    end
  end
  return shown
end

local others, at, others_after = {}, 1, '(' .. after
local function next_other()
  if not others[at] and others_after then
    others, at = redis.call('ZRANGEBYSCORE', EVENTS, others_after, '+inf', 'LIMIT', 0, events_max), 1
    others_after = #others == events_max and '(' .. string.match(others[#others], '^%d+')
  end
  return others[at]
end
local function others_before(seq)
  while not full() and next_other() and tonumber(string.match(others[at], '^%d+')) < seq do
    local shown = left(others[at])
    if shown then
      table.insert(page, shown)
    end
    at = at + 1
  end
end

local from = '(' .. after
repeat
  local chunk = redis.call('ZRANGEBYSCORE', MESSAGES, from, '+inf', 'LIMIT', 0, CHUNK)
  for _, message in ipairs(chunk) do
    local number = string.match(message, '^%-?%d+')
    others_before(tonumber(number))
    if full() then
      return {generation or '', page}
    end
    table.insert(page, {message})
    size = size + #message
    from = '(' .. number
  end
until #chunk < CHUNK or full()
if not full() then
  others_before(math.huge)
end
return {generation or '', page}
