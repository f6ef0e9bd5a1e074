-- Removes the messages of the run ARGV[2] and returns their number. The index returns their numbers in order, so adjacent
-- messages are removed in one step. ARGV[3] is the fencing token or nothing.
if is_fenced_off(ARGV[3]) then
  return fenced_off()
end
raise_fence(ARGV[3])
local run = ARGV[2]
local from, to = '[' .. run .. '\0', '(' .. run .. '\1'
local entries = redis.call('ZRANGEBYLEX', RUNS, from, to)
if #entries == 0 then
  return 0
end
local first, final
local function remove()
  redis.call('ZREMRANGEBYSCORE', MESSAGES, int(first), int(final))
end
for _, entry in ipairs(entries) do
  local number, size = string.match(string.sub(entry, #run + 2), '^(%d+) (%d+)$')
  local seq = tonumber(number) - OFFSET
  bytes = bytes - size
  if first and seq == final + 1 then
    final = seq
  else
    if first then
      remove()
    end
    first, final = seq, seq
  end
end
remove()
redis.call('ZREMRANGEBYLEX', RUNS, from, to)
messages = messages - #entries
happened(2, #entries, 0, 0, run)
save()
announce()
return #entries
