-- KEYS: names, revisions, expiries
-- ARGV: first name, first name too far, most items
-- Answers where to go on, empty at the end, and names and revisions in turn. Names that have expired are passed by, so many
-- of them at once at most: nobody else is served meanwhile.
local now = now_ms()
local from, most, looked_at = ARGV[1], tonumber(ARGV[3]), 0
local listed = {}
while #listed < 2 * most do
  if looked_at >= 10000 then return {from, listed} end
  local size = math.min(1000, math.max(64, most - #listed / 2))
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, ARGV[2], 'LIMIT', 0, size)
  if #names == 0 then break end
  local expiries = redis.call('ZMSCORE', KEYS[3], unpack(names))
  local revisions = redis.call('ZMSCORE', KEYS[2], unpack(names))
  for i, name in ipairs(names) do
    if #listed < 2 * most and not (expiries[i] and tonumber(expiries[i]) <= now) then
      listed[#listed + 1] = name
      listed[#listed + 1] = revisions[i]
    end
  end
  if #names < size then break end
  looked_at = looked_at + #names
  from = '(' .. names[#names]
end
return {'', listed}
