-- KEYS: meta, erased, values, names, revisions, expiries, deleted, expired
-- ARGV: registration (2), key, wanted revision ('' for any), tombstones kept, channel
-- Answers 'DELETED', 'ABSENT', 'CONFLICT' or 'FULL'. What is there was registered.
local key = ARGV[3]
local now = now_ms()
local found = found_at(key, now)
if ARGV[4] ~= '' and found ~= ARGV[4] then return 'CONFLICT' end
if not found then return 'ABSENT' end
local revision = next_revision()
if not revision then return 'FULL' end

-- Removing comes first: it is allowed when memory is full, and what follows it is then, too.
remove(key)
save(revision)
redis.call('ZADD', KEYS[7], int(revision), key)
redis.call('ZREM', KEYS[8], key)
written(revision, now, tonumber(ARGV[5]), ARGV[6])
return 'DELETED'
