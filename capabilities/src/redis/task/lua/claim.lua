-- KEYS: the board's. ARGV: worker, lease in milliseconds.
local CHUNK = 1000
local k = keys_of(1)
check_types(k)
local numbers, absent = board_numbers(k)
if not numbers then return absent.err and absent or { 'none' } end
if numbers.revision >= LAST or numbers.token >= LAST then return { 'full' } end
local now = now_ms()

-- Finds the first free task at the heads of both queues. Leases that expired since the last claim are queued by position.
local passed = redis.call('ZRANGEBYSCORE', k.leases, '-inf', int(now))
local positions = {}
for from = 1, #passed, CHUNK do
  local to = math.min(from + CHUNK - 1, #passed)
  for at, text in ipairs(redis.call('HMGET', k.state, unpack(passed, from, to))) do
    local task = text and unpack_state(text)
    if not task then return { 'corrupt' } end
    positions[from + at - 1] = task.position
  end
end
local planned = redis.call('ZRANGEBYSCORE', k.order, '0', '(' .. int(SPAN), 'WITHSCORES', 'LIMIT', 0, 1)
local lapsed = redis.call('ZRANGE', k.lapsed, 0, 0, 'WITHSCORES')
local first, place = planned[1], tonumber(planned[2])
if lapsed[1] and (not first or tonumber(lapsed[2]) < place) then
  first, place = lapsed[1], tonumber(lapsed[2])
end
for at, id in ipairs(passed) do
  local position = tonumber(positions[at])
  if not first or position < place then first, place = id, position end
end
if not first then return { 'none' } end
local text = redis.call('HGET', k.state, first)
local task = text and unpack_state(text)
if not task then return { 'corrupt' } end

for at, id in ipairs(passed) do
  redis.call('ZADD', k.lapsed, positions[at], id)
  redis.call('ZREM', k.leases, id)
end
numbers.token = numbers.token + 1
task.status, task.token, task.worker = IN_PROGRESS, int(numbers.token), ARGV[1]
task.ends = int(now + tonumber(ARGV[2]))
put(k, first, task, numbers)
return shown(k, first, 'task')
