-- KEYS: names, revisions, expiries, meta
-- ARGV: first name, name at which to stop, maximum items
-- Returns the name to continue from (empty at the end), then names and revisions alternately, then the generation. Skips expired names, up to a
-- limit, because the server runs nothing else during a script.
local now = now_ms()
local generation = redis.call('HGET', KEYS[4], 'generation')
local from, most, skipped = ARGV[1], tonumber(ARGV[3]), 0
local listed = {}
while #listed < 2 * most do
  if skipped >= 10000 then return {from, listed, generation} end
  local size = math.min(1000, math.max(64, most - #listed / 2))
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, ARGV[2], 'LIMIT', 0, size)
  if #names == 0 then break end
  local expiries = redis.call('ZMSCORE', KEYS[3], unpack(names))
  local revisions = redis.call('ZMSCORE', KEYS[2], unpack(names))
  for i, name in ipairs(names) do
    if expiries[i] and tonumber(expiries[i]) <= now then
      skipped = skipped + 1
    elseif #listed < 2 * most then
      listed[#listed + 1] = name
      listed[#listed + 1] = revisions[i]
    end
  end
  if #names < size then break end
  from = '(' .. names[#names]
end
return {'', listed, generation}
