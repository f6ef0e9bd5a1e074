-- KEYS: the board's. ARGV: id.
local k = keys_of(1)
if redis.call('HEXISTS', k.state, ARGV[1]) == 0 then return { 'none' } end
return shown(k, ARGV[1], 'task')
