-- KEYS: meta, erased, values, names, revisions, expiries, deleted, expired
-- ARGV: registration (2), key, expected revision ('' for any), maximum tombstones, channel, generation or ''
-- Returns 'DELETED', 'ABSENT', 'CONFLICT' or 'FULL'. An existing key is registered.
local key = ARGV[3]
local now = now_ms()
local found = found_at(key, now)
if ARGV[4] ~= '' and (found ~= ARGV[4] or not is_of(ARGV[7])) then return 'CONFLICT' end
if not found then return 'ABSENT' end
local revision = next_revision()
if not revision then return 'FULL' end

-- Removes first: the server allows this when its memory is full, and then also the writes after it.
remove(key)
save(revision)
redis.call('ZADD', KEYS[7], int(revision), key)
redis.call('ZREM', KEYS[8], key)
written(revision, now, tonumber(ARGV[5]), ARGV[6], revision - 1)
return 'DELETED'
