-- KEYS: meta, erased, values, names, revisions, expiries, deleted, expired
-- ARGV: registration (2), maximum tombstones, channel, then for each write: 'put' or 'delete', key, expected revision ('' for any,
-- 'absent'), generation or '', time to live, value
-- Returns the revisions (0 for the deletion of an absent key) and then the generation; or 'CONFLICT' with the position of the
-- first condition that does not hold, 'FULL', 'REGISTER'.
local now = now_ms()
local exists, puts, changes = {}, false, 0
for i = 5, #ARGV, 6 do
  local found, wanted = found_at(ARGV[i + 1], now), ARGV[i + 2]
  local holds = wanted == ''
  if wanted == 'absent' then
    holds = not found
  elseif wanted ~= '' then
    holds = found == wanted and is_of(ARGV[i + 3])
  end
  if not holds then return 'CONFLICT ' .. int((i - 5) / 6) end
  exists[i] = found
  if ARGV[i] == 'put' then puts = true end
  if ARGV[i] == 'put' or found then changes = changes + 1 end
end
if puts and not registered() then return 'REGISTER' end
local first = next_revision()
if not first or first + changes >= 9007199254740991 then return 'FULL' end

-- A put may need memory, so its first command is one that the server rejects when its memory is full. Deletions alone begin with
-- a removal: the server allows it, and then also the writes after it.
local revision, answer = first - 1, {}
if puts then save(first + changes - 1) end
for i = 5, #ARGV, 6 do
  local key = ARGV[i + 1]
  if ARGV[i] == 'put' then
    revision = revision + 1
    redis.call('HSET', KEYS[3], key, ARGV[i + 5])
    redis.call('ZADD', KEYS[4], 0, key)
    redis.call('ZADD', KEYS[5], int(revision), key)
    if ARGV[i + 4] == '' then
      redis.call('ZREM', KEYS[6], key)
    else
      redis.call('ZADD', KEYS[6], int(now + tonumber(ARGV[i + 4])), key)
    end
    redis.call('ZREM', KEYS[7], key)
    redis.call('ZREM', KEYS[8], key)
    answer[#answer + 1] = int(revision)
  elseif exists[i] then
    revision = revision + 1
    remove(key)
    redis.call('ZADD', KEYS[7], int(revision), key)
    redis.call('ZREM', KEYS[8], key)
    answer[#answer + 1] = int(revision)
  else
    answer[#answer + 1] = '0'
  end
end
if changes > 0 then
  if not puts then save(revision) end
  written(revision, now, tonumber(ARGV[3]), ARGV[4], first - 1)
end
answer[#answer + 1] = generation or ''
return answer
