-- KEYS: meta, erased, boards. ARGV: epoch, its time to live, channel, the prefix of the conversation's keys.
-- Returns whether nothing is left. Removes up to a thousand boards per call.
local MOST = 1000
local format = redis.pcall('HGET', KEYS[1], '')
if type(format) == 'string' and not supported(format) then return wrong_format(format) end
for _, agent in ipairs(redis.call('ZRANGE', KEYS[3], 0, MOST - 1)) do
  local k = keys_named(ARGV[4], agent)
  redis.call('UNLINK', k.board, k.tasks, k.state, k.results, k.order, k.leases, k.lapsed)
  redis.call('ZREM', KEYS[3], agent)
end
if redis.call('ZCARD', KEYS[3]) > 0 then return 0 end
local before = redis.call('GET', KEYS[2])
redis.call('UNLINK', KEYS[1], KEYS[3])
if not before or tonumber(before) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', tonumber(ARGV[2]))
end
return 1
