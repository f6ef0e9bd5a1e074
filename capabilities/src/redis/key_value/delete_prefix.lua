-- KEYS: meta, erased, values, names, revisions, expiries, deleted, expired
-- ARGV: registration (2), first name, name at which to stop, maximum keys, maximum tombstones, channel
-- Returns the number of deleted keys, whether another key was found, and the name from which to look for more (empty at the end, and
-- if another key was found); or 'FULL'. Stops after 10,000 expired names.
local now, most = now_ms(), tonumber(ARGV[5])
local from, names, skipped = ARGV[3], {}, 0
while #names <= most do
  if skipped >= 10000 then break end
  local page = redis.call('ZRANGEBYLEX', KEYS[4], from, ARGV[4], 'LIMIT', 0, 1000)
  if #page == 0 then from = '' break end
  local expiries = redis.call('ZMSCORE', KEYS[6], unpack(page))
  for i, name in ipairs(page) do
    if expiries[i] and tonumber(expiries[i]) <= now then
      skipped = skipped + 1
    elseif #names <= most then
      names[#names + 1] = name
    end
  end
  from = '(' .. page[#page]
  if #page < 1000 then from = '' break end
end
local more = #names > most
if more then
  names[#names] = nil
  from = ''
end
if #names == 0 then return {0, 0, from} end
local first = next_revision()
if not first or first + #names >= 9007199254740991 then return 'FULL' end

-- Removes first: the server allows this when its memory is full, and then also the writes after it.
for _, name in ipairs(names) do remove(name) end
local revision = first - 1
for _, name in ipairs(names) do
  revision = revision + 1
  redis.call('ZADD', KEYS[7], int(revision), name)
  redis.call('ZREM', KEYS[8], name)
end
save(revision)
written(revision, now, tonumber(ARGV[6]), ARGV[7], first - 1)
return {#names, more and 1 or 0, from}
