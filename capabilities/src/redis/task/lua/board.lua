-- What the scripts of a board share. All its keys stand in the slot of its conversation:
--   meta      hash, agent that ever had a board -> the last "position revision token" of the one that is gone; no agent ->
--             the format
--   boards    sorted set, agents that have a board, in byte order
--   board     hash: position, revision, token (the last ones given), format, label, parent
--   tasks     hash, id -> what a task was added with
--   state     hash, id -> "status position revision retries retries_max", and under a lease " token ends_ms worker"
--   results   hash, id -> result
--   order     sorted set of ids by status * SPAN + position
--   leases    sorted set of ids under a lease by its end
--   lapsed    sorted set of ids whose lease was seen to have passed, by position
-- A script reads and decides first and writes last, and no write can fail once the first is done.
local SPAN = 2 ^ 50
local LAST = 2 ^ 53 - 1
local PLANNED, IN_PROGRESS = '0', '1'

local function keys_of(first)
  return { board = KEYS[first], tasks = KEYS[first + 1], state = KEYS[first + 2], results = KEYS[first + 3],
    order = KEYS[first + 4], leases = KEYS[first + 5], lapsed = KEYS[first + 6] }
end

local function keys_named(prefix, agent)
  return { board = prefix .. 'board:' .. agent, tasks = prefix .. 'tasks:' .. agent,
    state = prefix .. 'state:' .. agent, results = prefix .. 'results:' .. agent,
    order = prefix .. 'order:' .. agent, leases = prefix .. 'leases:' .. agent,
    lapsed = prefix .. 'lapsed:' .. agent }
end

-- Fails where a key holds another type, before anything is written.
local function check_types(k)
  for _, key in ipairs({ k.board, k.tasks, k.state, k.results }) do redis.call('HLEN', key) end
  for _, key in ipairs({ k.order, k.leases, k.lapsed }) do redis.call('ZCARD', key) end
end

-- The numbers that the board gave last, or nothing and the answer that says why.
local function board_numbers(k)
  local found = redis.call('HMGET', k.board, 'position', 'revision', 'token', 'format')
  if not (found[1] and found[2] and found[3]) then return nil, { 'no_board' } end
  if found[4] ~= FORMAT then return nil, wrong_format(found[4]) end
  return { position = tonumber(found[1]), revision = tonumber(found[2]), token = tonumber(found[3]) }
end

local function unpack_state(text)
  local status, position, revision, retries, retries_max, rest =
    string.match(text, '^(%d) (%d+) (%d+) (%d+) (%d+)(.*)$')
  if not status then return nil end
  local token, ends, worker = string.match(rest, '^ (%d+) (%d+) (.*)$')
  return { status = status, position = position, revision = revision, retries = retries,
    retries_max = retries_max, token = token, ends = ends, worker = worker }
end

local function pack_state(task)
  local text = table.concat({ task.status, task.position, task.revision, task.retries, task.retries_max }, ' ')
  if task.token then text = table.concat({ text, task.token, task.ends, task.worker }, ' ') end
  return text
end

-- The state of a task, or nothing and the answer that says why.
local function find(k, id)
  check_types(k)
  local numbers, absent = board_numbers(k)
  if not numbers then return nil, absent end
  local text = redis.call('HGET', k.state, id)
  if not text then return nil, { 'no_task' } end
  local task = unpack_state(text)
  if not task then return nil, { 'corrupt' } end
  if numbers.revision >= LAST or numbers.token >= LAST then return nil, { 'full' } end
  return task, nil, numbers
end

local function score(status, position)
  return int(status * SPAN + position)
end

-- Writes a task at the board's next revision, and its places in the order and among the leases.
local function put(k, id, task, numbers)
  numbers.revision = numbers.revision + 1
  task.revision = int(numbers.revision)
  redis.call('HSET', k.board, 'revision', task.revision, 'token', int(numbers.token))
  redis.call('HSET', k.state, id, pack_state(task))
  redis.call('ZADD', k.order, score(task.status, task.position), id)
  redis.call('ZREM', k.lapsed, id)
  if task.token then
    redis.call('ZADD', k.leases, task.ends, id)
  else
    redis.call('ZREM', k.leases, id)
  end
end

-- The answer that shows a task.
local function shown(k, id, word)
  return { word, id, redis.call('HGET', k.tasks, id), redis.call('HGET', k.state, id),
    redis.call('HGET', k.results, id) }
end
