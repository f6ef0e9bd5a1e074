-- KEYS: meta, boards, the board's. ARGV: agent.
local meta, boards, k = KEYS[1], KEYS[2], keys_of(3)
local numbers, absent = board_numbers(k)
redis.call('ZCARD', boards)
redis.call('HLEN', meta)
if not numbers then return absent end

-- Removes first: the server allows this when its memory is full, and then also the writes after it.
redis.call('ZREM', boards, ARGV[1])
redis.call('HSET', meta, ARGV[1],
  table.concat({ int(numbers.position), int(numbers.revision), int(numbers.token) }, ' '))
if numbers.generation then redis.call('HSET', meta, ARGV[1] .. '\0', numbers.generation) end
redis.call('UNLINK', k.board, k.tasks, k.state, k.results, k.order, k.leases, k.lapsed)
return { 'deleted' }
