-- KEYS: the board's. ARGV: id, new status, the statuses that allow it, expected revision or nothing, token or
-- nothing, a flag for a result, result, the generations of the revision and of the token or nothing.
local k, id = keys_of(1), ARGV[1]
local task, refused, numbers = find(k, id)
if not task then return refused end
if ARGV[4] ~= '' and (ARGV[4] ~= task.revision or not is_of(ARGV[8], numbers)) then return { 'revision' } end
if ARGV[5] ~= (task.token or '') or not is_of(ARGV[9], numbers) then return { 'token' } end
if not string.find(ARGV[3], task.status, 1, true) then return { 'status', task.status } end

task.status, task.token = ARGV[2], nil
put(k, id, task, numbers)
if ARGV[6] == '1' then redis.call('HSET', k.results, id, ARGV[7]) end
return shown(k, id, 'task')
