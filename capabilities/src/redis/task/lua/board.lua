-- Functions shared by the scripts of a board. All its keys are in the slot of its conversation:
--   meta      hash, agent -> the last "position revision token" of its deleted board; agent NUL -> its generation; the empty
--             agent -> the format
--   boards    sorted set, agents that have a board, in byte order
--   board     hash: position, revision, token (the last assigned), format, generation, label, parent
--   tasks     hash, id -> the initial fields of a task
--   state     hash, id -> "status position revision retries retries_max", and with a lease " token ends_ms worker"
--   results   hash, id -> result
--   order     sorted set of ids by status * SPAN + position
--   leases    sorted set of ids with a lease, by its end
--   lapsed    sorted set of ids with an expired lease, by position
-- A script first reads and decides, then writes. No write can fail after the first one.
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

-- Fails if a key has another type, before the first write.
local function check_types(k)
  for _, key in ipairs({ k.board, k.tasks, k.state, k.results }) do redis.call('HLEN', key) end
  for _, key in ipairs({ k.order, k.leases, k.lapsed }) do redis.call('ZCARD', key) end
end

-- Returns the board's last numbers, or nil and the reply with the reason.
local function board_numbers(k)
  local found = redis.call('HMGET', k.board, 'position', 'revision', 'token', 'format', 'generation')
  if not (found[1] and found[2] and found[3]) then return nil, { 'no_board' } end
  if not supported(found[4]) then return nil, wrong_format(found[4]) end
  return { position = tonumber(found[1]), revision = tonumber(found[2]), token = tonumber(found[3]),
    generation = found[5] }
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

-- Returns the state of a task, or nil and the reply with the reason.
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

-- Returns whether a generation that the caller names, or nothing, is the board's.
local function is_of(wanted, numbers)
  return wanted == '' or wanted == numbers.generation
end

-- Draws the generation of a board that has none.
local function draw_missing(k, numbers)
  if not numbers.generation then
    numbers.generation = draw(k.board)
    redis.call('HSET', k.board, 'generation', numbers.generation)
  end
end

local function score(status, position)
  return int(status * SPAN + position)
end

-- Writes a task at the board's next revision, with its entries in `order`, `leases` and `lapsed`.
local function put(k, id, task, numbers)
  numbers.revision = numbers.revision + 1
  task.revision = int(numbers.revision)
  draw_missing(k, numbers)
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

-- Returns the reply with a task.
local function shown(k, id, word)
  return { word, id, redis.call('HGET', k.tasks, id), redis.call('HGET', k.state, id),
    redis.call('HGET', k.results, id), redis.call('HGET', k.board, 'generation') }
end
