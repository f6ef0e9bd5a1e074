-- KEYS: the board's. ARGV: id.
local k, id = keys_of(1), ARGV[1]
local task, refused, numbers = find(k, id)
if not task then return refused end

task.status, task.token, task.retries = PLANNED, nil, '0'
put(k, id, task, numbers)
redis.call('HDEL', k.results, id)
return shown(k, id, 'task')
