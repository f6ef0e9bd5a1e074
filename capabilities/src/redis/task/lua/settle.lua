-- KEYS: boards, a key that never exists. ARGV: the prefix of the conversation's keys.
-- Reads every board before it writes the first.
local CHUNK = 1000
local LOW, HIGH = int(SPAN), '(' .. int(2 * SPAN)
local busy, settled = {}, 0
for _, agent in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local k = keys_named(ARGV[1], agent)
  check_types(k)
  local ids = redis.call('ZRANGEBYSCORE', k.order, LOW, HIGH)
  if #ids > 0 then
    local numbers, absent = board_numbers(k)
    if not numbers then return absent.err and absent or { 'corrupt' } end
    if numbers.revision >= LAST then return { 'full' } end
    local tasks = {}
    for from = 1, #ids, CHUNK do
      local to = math.min(from + CHUNK - 1, #ids)
      for at, text in ipairs(redis.call('HMGET', k.state, unpack(ids, from, to))) do
        local task = text and unpack_state(text)
        if not task then return { 'corrupt' } end
        tasks[from + at - 1] = task
      end
    end
    busy[#busy + 1] = { k = k, ids = ids, tasks = tasks, revision = int(numbers.revision + 1) }
    settled = settled + #ids
  end
end

for _, board in ipairs(busy) do
  redis.call('HSET', board.k.board, 'revision', board.revision)
  for at, id in ipairs(board.ids) do
    local task = board.tasks[at]
    task.status, task.token, task.revision = ARGV[2], nil, board.revision
    redis.call('HSET', board.k.state, id, pack_state(task))
    redis.call('ZADD', board.k.order, score(task.status, task.position), id)
  end
  -- Only tasks in progress have a lease.
  redis.call('DEL', board.k.leases, board.k.lapsed)
end
return { 'settled', settled }
