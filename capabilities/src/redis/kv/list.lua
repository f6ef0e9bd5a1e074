-- KEYS: names, revisions, expiries
-- ARGV: first name, first name too far, most items
-- Answers names and revisions in turn.
local now = now_ms()
local from, most = ARGV[1], tonumber(ARGV[3])
local listed = {}
while #listed < 2 * most do
  local size = math.min(1000, most - #listed / 2)
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, ARGV[2], 'LIMIT', 0, size)
  if #names == 0 then break end
  local expiries = redis.call('ZMSCORE', KEYS[3], unpack(names))
  local revisions = redis.call('ZMSCORE', KEYS[2], unpack(names))
  for i, name in ipairs(names) do
    if not (expiries[i] and tonumber(expiries[i]) <= now) then
      listed[#listed + 1] = name
      listed[#listed + 1] = revisions[i]
    end
  end
  if #names < size then break end
  from = '(' .. names[#names]
end
return listed
