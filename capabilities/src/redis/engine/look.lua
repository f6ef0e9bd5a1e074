-- Returns the counters of threads and buckets: of a thread its last number and 1 if its time to live has passed, of a bucket
-- its last revision and the greatest forgotten one.
--
-- KEYS: heads of threads and metas of buckets. ARGV: a letter for each key, `b` for a bucket, `t` for a thread, `r` for a
-- thread whose mark is renewed; the milliseconds of a mark.
local now = now_ms()
local found = {}
for at, key in ipairs(KEYS) do
  local kind = string.sub(ARGV[1], at, at)
  if kind == 'b' then
    local meta = redis.pcall('HMGET', key, 'revision', 'forgotten')
    found[at] = {meta[1] or '0', meta[2] or '0'}
  else
    local head = redis.pcall('HMGET', key, 's', 'e', 'n')
    local ended = head[2] and head[3] and tonumber(head[3]) > 0 and tonumber(head[2]) <= now
    found[at] = {head[1] or '0', ended and '1' or '0'}
    if kind == 'r' and head[1] then
      redis.pcall('HSET', key, 'w', int(now + ARGV[2]))
    end
  end
end
return found
