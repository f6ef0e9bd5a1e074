-- KEYS: the board's, meta. ARGV: requested statuses, the position to start after, maximum tasks, maximum bytes, agent.
-- Returns whether the listing ends here, the tasks, and the generation of the board, also of a deleted one. A call returns at least one task, even if it exceeds the bytes.
local CHUNK = 16
local k = keys_of(1)
local after, most, bytes_max = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local found = {}
local generation = redis.call('HGET', k.board, 'generation') or redis.call('HGET', KEYS[8], ARGV[5] .. '\0')
for status in string.gmatch(ARGV[1], '%d') do
  local low, high = '(' .. int(status * SPAN + after), '(' .. int((status + 1) * SPAN)
  local part = redis.call('ZRANGEBYSCORE', k.order, low, high, 'WITHSCORES', 'LIMIT', 0, most)
  for at = 1, #part, 2 do
    found[#found + 1] = { id = part[at], position = part[at + 1] - status * SPAN }
  end
end
table.sort(found, function(left, right) return left.position < right.position end)

local total = math.min(most, #found)
local rows, bytes, from = {}, 0, 1
while from <= total and bytes < bytes_max do
  local to = math.min(from + CHUNK - 1, total)
  local ids = {}
  for at = from, to do ids[#ids + 1] = found[at].id end
  local fixed = redis.call('HMGET', k.tasks, unpack(ids))
  local state = redis.call('HMGET', k.state, unpack(ids))
  local result = redis.call('HMGET', k.results, unpack(ids))
  for at, id in ipairs(ids) do
    rows[#rows + 1] = { id, fixed[at], state[at], result[at], generation }
    bytes = bytes + #id + #(fixed[at] or '') + #(state[at] or '') + #(result[at] or '')
  end
  from = to + 1
end
local ended = (#found < most and #rows == #found) and 1 or 0
return { 'tasks', ended, rows, generation }
