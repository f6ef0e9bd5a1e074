-- KEYS: the board's. ARGV: id, token, lease in milliseconds, generation or nothing.
local k, id = keys_of(1), ARGV[1]
local task, refused, numbers = find(k, id)
if not task then return refused end
if ARGV[2] ~= task.token or not is_of(ARGV[4], numbers) then return { 'token' } end

task.ends = int(now_ms() + tonumber(ARGV[3]))
put(k, id, task, numbers)
return shown(k, id, 'task')
