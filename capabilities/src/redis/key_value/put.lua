-- KEYS: meta, erased, values, names, revisions, expiries, deleted, expired
-- ARGV: registration (2), key, expected revision ('' for any, 'absent'), maximum tombstones, channel, generation or '', time to live,
-- value
-- Returns the revision and the generation, or 'EXISTS', 'CONFLICT', 'FULL', 'REGISTER'.
local key = ARGV[3]
local now = now_ms()
local found = found_at(key, now)
if ARGV[4] == 'absent' then
  if found then return 'EXISTS' end
elseif ARGV[4] ~= '' and (found ~= ARGV[4] or not is_of(ARGV[7])) then
  return 'CONFLICT'
end
if not registered() then return 'REGISTER' end
local revision = next_revision()
if not revision then return 'FULL' end

save(revision)
redis.call('HSET', KEYS[3], key, ARGV[9])
redis.call('ZADD', KEYS[4], 0, key)
redis.call('ZADD', KEYS[5], int(revision), key)
if ARGV[8] == '' then
  redis.call('ZREM', KEYS[6], key)
else
  redis.call('ZADD', KEYS[6], int(now + tonumber(ARGV[8])), key)
end
redis.call('ZREM', KEYS[7], key)
redis.call('ZREM', KEYS[8], key)
written(revision, now, tonumber(ARGV[5]), ARGV[6], revision - 1)
return int(revision) .. ' ' .. generation
