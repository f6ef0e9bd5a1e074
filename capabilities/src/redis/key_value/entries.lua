-- KEYS: names, revisions, expiries, meta, values
-- ARGV: first name, name at which to stop, maximum items, 'forward' or 'reverse', 'values' or '', size at which a page ends
-- Returns the name to continue from (empty at the end), the entries, and the generation. An entry is its name, revision, expiry and
-- value; the entry whose value exceeds the size has no value and is the last one. Skips expired names, up to a limit, because the
-- server runs nothing else during a script.
local now = now_ms()
local generation = redis.call('HGET', KEYS[4], 'generation')
local from, to, most, reverse = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == 'reverse'
local listed, skipped, bytes = {}, 0, 0
while #listed < most do
  if skipped >= 10000 then return {from, listed, generation} end
  local size = math.min(1000, math.max(64, most - #listed))
  local names
  if reverse then
    names = redis.call('ZREVRANGEBYLEX', KEYS[1], from, to, 'LIMIT', 0, size)
  else
    names = redis.call('ZRANGEBYLEX', KEYS[1], from, to, 'LIMIT', 0, size)
  end
  if #names == 0 then break end
  local expiries = redis.call('ZMSCORE', KEYS[3], unpack(names))
  local revisions = redis.call('ZMSCORE', KEYS[2], unpack(names))
  for i, name in ipairs(names) do
    if expiries[i] and tonumber(expiries[i]) <= now then
      skipped = skipped + 1
    elseif #listed < most then
      local value = false
      if ARGV[5] == 'values' then
        bytes = bytes + redis.call('HSTRLEN', KEYS[5], name)
        if bytes > tonumber(ARGV[6]) then
          listed[#listed + 1] = {name, revisions[i], expiries[i], false}
          return {'', listed, generation}
        end
        value = redis.call('HGET', KEYS[5], name)
      end
      listed[#listed + 1] = {name, revisions[i], expiries[i], value}
    end
  end
  if #names < size then break end
  from = '(' .. names[#names]
end
return {'', listed, generation}
