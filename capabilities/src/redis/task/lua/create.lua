-- KEYS: meta, erased, boards, the board's. ARGV: the registration (2), agent, label and parent (each a flag
-- for its presence, and the text), tasks.
local TASKS = 8
local meta, boards, k = KEYS[1], KEYS[3], keys_of(4)
local agent = ARGV[3]
local format = redis.call('HGET', meta, '')
if not supported(format) and (format or redis.call('EXISTS', meta) == 1) then return wrong_format(format) end
if not registered() then return 'REGISTER' end
check_types(k)
local old = redis.call('HGET', meta, agent)
if redis.call('ZSCORE', boards, agent) then return { 'exists' } end
local numbers = { position = 0, revision = 0, token = 0 }
if old and old ~= '' then
  local position, revision, token = string.match(old, '^(%d+) (%d+) (%d+)$')
  if not position then return { 'corrupt' } end
  numbers = { position = tonumber(position), revision = tonumber(revision), token = tonumber(token),
    generation = redis.call('HGET', meta, agent .. '\0') }
end
local refused = room_for(k, numbers, TASKS)
if refused then return refused end

local added = append(k, numbers, TASKS)
if ARGV[4] == '1' then redis.call('HSET', k.board, 'label', ARGV[5]) end
if ARGV[6] == '1' then redis.call('HSET', k.board, 'parent', ARGV[7]) end
redis.call('ZADD', boards, 0, agent)
redis.call('HSET', meta, agent, '', '', FORMAT)
return added
