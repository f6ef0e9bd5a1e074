-- Functions shared by the scripts that write to a bucket. Those before `save` only read. Together they read every key of the
-- bucket, so that a key of another type stops the script before its first write.
local meta = redis.call('HMGET', KEYS[1], 'revision', 'format', 'generation')
if meta[1] and not supported(meta[2]) then return wrong_format(meta[2]) end

-- Nothing for a bucket that was never written, or not since a version that drew none.
local generation = meta[3]

local function is_of(wanted)
  return wanted == '' or wanted == generation
end

local function found_at(key, now)
  local revision = redis.call('ZSCORE', KEYS[5], key)
  local expires = redis.call('ZSCORE', KEYS[6], key)
  if expires and tonumber(expires) <= now then return false end
  return revision
end

local function next_revision()
  redis.call('HEXISTS', KEYS[3], '')
  redis.call('ZCARD', KEYS[4])
  redis.call('ZCARD', KEYS[7])
  redis.call('ZCARD', KEYS[8])
  local revision = tonumber(meta[1] or '0') + 1
  return revision < 9007199254740991 and revision
end

-- Stores the revision, and the format and the generation with the first revision.
local function save(revision)
  if not generation then
    generation = draw(KEYS[1])
    redis.call('HSET', KEYS[1], 'generation', generation)
  end
  if meta[2] then
    redis.call('HSET', KEYS[1], 'revision', int(revision))
  else
    redis.call('HSET', KEYS[1], 'revision', int(revision), 'format', FORMAT)
  end
end

local function remove(key)
  redis.call('HDEL', KEYS[3], key)
  for i = 4, 6 do
    redis.call('ZREM', KEYS[i], key)
  end
end

-- Drops the oldest tombstones beyond the limit, and stores the greatest dropped revision.
local function forget(tombstones, kept)
  local surplus = redis.call('ZCARD', tombstones) - kept
  if surplus <= 0 then return end
  local last = redis.call('ZRANGE', tombstones, surplus - 1, surplus - 1, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYRANK', tombstones, 0, surplus - 1)
  if tonumber(last) > tonumber(redis.call('HGET', KEYS[1], 'forgotten') or '0') then
    redis.call('HSET', KEYS[1], 'forgotten', last)
  end
end

-- If every key has a time to live, sets an expiry on the values: a minute after the last key expires, as for keys that writes
-- remove. Only the names of such keys remain.
local function end_values_with_last_key()
  local ending = redis.call('ZCARD', KEYS[6])
  if ending > 0 and ending == redis.call('ZCARD', KEYS[4]) then
    local last = redis.call('ZREVRANGE', KEYS[6], 0, 0, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', KEYS[3], int(last + 60000))
  else
    redis.call('PERSIST', KEYS[3])
  end
end

-- Ends a write: turns keys that expired a minute ago into tombstones, because watchers in progress have read their put by
-- then; drops old tombstones from time to time; sends the notification. `before` is the bucket's last revision before the write.
local function written(revision, now, kept, channel, before)
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', int(now - 60000), 'LIMIT', 0, 16)) do
    redis.call('ZADD', KEYS[8], redis.call('ZSCORE', KEYS[5], key), key)
    remove(key)
  end
  end_values_with_last_key()
  if math.floor(revision / 256) > math.floor(before / 256) then
    forget(KEYS[7], kept)
    forget(KEYS[8], kept)
  end
  redis.pcall('PUBLISH', channel, '')
end
