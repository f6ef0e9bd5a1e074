-- The general append.
local token, key, digest = ARGV[2], ARGV[3], ARGV[4]
if key ~= '' then
  local answered = first_result('k' .. key, digest)
  if answered == false then
    return {2}
  elseif answered then
    raise_fence(ARGV[9])
    local first, final = string.match(answered, '^(%d+) (%d+)$')
    return {0, tonumber(first), tonumber(final), generation or ''}
  end
end
if is_fenced_off(ARGV[9]) then
  return fenced_off()
end
if not is_last(ARGV[7], ARGV[8]) then
  return {4, last, generation or ''}
end
local count = (#ARGV - 9) / 3
if last + count > SEQ_MAX then
  return {3}
end
if not indexed(token) then
  return {1}
end
local first = last + 1
for at = 10, #ARGV, 3 do
  last = last + 1
  bytes = bytes + ARGV[at]
  place_one(last, ARGV[at], ARGV[at + 1], ARGV[at + 2], bytes, 0)
end
messages = messages + count
if key ~= '' then
  redis.call('HSET', THREAD, 'k' .. key, digest .. int(first) .. ' ' .. int(last))
end
if ARGV[5] ~= '' then
  live(ARGV[5], ARGV[6])
else
  renew()
end
save(ARGV[9])
announce()
if not ends and not fence then
  return {0, first, last, generation, 1}
end
return {0, first, last, generation}
