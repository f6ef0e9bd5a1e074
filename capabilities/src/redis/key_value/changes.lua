-- KEYS: meta, values, revisions, expiries, deleted, expired
-- ARGV: the revision to start after, prefix, maximum changes, size at which a page ends
-- Returns the last revision, the greatest forgotten revision, the last revision that was scanned, whether more changes may
-- follow, and the changes: key, revision, and the value and expiry of a put. The last reply is the generation.
local meta = redis.call('HMGET', KEYS[1], 'revision', 'forgotten', 'format', 'generation')
if meta[1] and not supported(meta[3]) then return wrong_format(meta[3]) end
local last, prefix = tonumber(meta[1] or '0'), ARGV[2]
local looked_at, horizon = 1000, last
local found, now = {}, now_ms()
for _, source in ipairs({KEYS[3], KEYS[5], KEYS[6]}) do
  local range = redis.call('ZRANGEBYSCORE', source, '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, looked_at)
  for i = 1, #range, 2 do
    if range[i]:sub(1, #prefix) == prefix then
      found[#found + 1] = {range[i], tonumber(range[i + 1]), source == KEYS[3]}
    end
  end
  -- More changes may follow the last scanned one.
  if #range == 2 * looked_at then horizon = math.min(horizon, tonumber(range[#range])) end
end
table.sort(found, function(a, b) return a[2] < b[2] end)

local changes, size, cursor = {}, 0, horizon
for _, change in ipairs(found) do
  if change[2] > horizon then break end
  if #changes >= tonumber(ARGV[3]) or size >= tonumber(ARGV[4]) then
    cursor = changes[#changes][2]
    break
  end
  local value, expires = false, false
  if change[3] then
    expires = redis.call('ZSCORE', KEYS[4], change[1])
    -- An expired put is a deletion. The server may have freed its value already.
    value = not (expires and tonumber(expires) <= now) and redis.call('HGET', KEYS[2], change[1])
    expires = value and expires
    size = size + (value and #value or 0)
  end
  changes[#changes + 1] = {change[1], change[2], value, expires}
end
for _, change in ipairs(changes) do change[2] = int(change[2]) end
return {int(last), meta[2] or '0', int(cursor), cursor < last and 1 or 0, changes, meta[4]}
