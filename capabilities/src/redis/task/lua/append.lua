-- Returns the positions of new tasks at the end of a board. ARGV from `first` on: id, retries_max and the rest of each task.
local function room_for(k, numbers, first)
  local count = (#ARGV - first + 1) / 3
  if numbers.position + count >= SPAN or numbers.revision >= LAST then return { 'full' } end
  for at = first, #ARGV, 3 do
    if redis.call('HEXISTS', k.state, ARGV[at]) == 1 then return { 'taken' } end
  end
  return nil
end

-- Writes the tasks. Returns the position before them, their revision and the generation.
local function append(k, numbers, first)
  local before = numbers.position
  numbers.revision = numbers.revision + 1
  local revision = int(numbers.revision)
  for at = first, #ARGV, 3 do
    local id = ARGV[at]
    numbers.position = numbers.position + 1
    local task = { status = PLANNED, position = int(numbers.position), revision = revision, retries = '0',
      retries_max = ARGV[at + 1] }
    redis.call('HSET', k.tasks, id, ARGV[at + 2])
    redis.call('HSET', k.state, id, pack_state(task))
    redis.call('ZADD', k.order, score(PLANNED, task.position), id)
  end
  redis.call('HSET', k.board, 'position', int(numbers.position), 'revision', revision,
    'token', int(numbers.token), 'format', FORMAT)
  if numbers.generation then redis.call('HSET', k.board, 'generation', numbers.generation) end
  draw_missing(k, numbers)
  return { 'added', int(before), revision, numbers.generation }
end
