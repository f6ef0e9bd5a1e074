-- KEYS: the board's. ARGV: id, the statuses that allow it, token or nothing, generation or nothing.
local k, id = keys_of(1), ARGV[1]
local task, refused, numbers = find(k, id)
if not task then return refused end
if ARGV[3] ~= (task.token or '') or not is_of(ARGV[4], numbers) then return { 'token' } end
if not string.find(ARGV[2], task.status, 1, true) then return { 'status', task.status } end
if tonumber(task.retries) >= tonumber(task.retries_max) then return shown(k, id, 'exhausted') end

task.status, task.token, task.retries = PLANNED, nil, int(task.retries + 1)
put(k, id, task, numbers)
return shown(k, id, 'task')
