-- Updates a message in place.
--
-- ARGV: channel, token, the number that the thread's last one must be or nothing, its generation or nothing, the number that the
-- thread must have reached or nothing, its generation or nothing, idempotency key or nothing, digest, fencing token or nothing,
-- number of the message, its revision, then size, run and body of the new message.
--
-- Returns {0, last, generation}; {1} if the thread is not registered in the index; {2} if the key was used for another update or
-- a removal; {3} if the numbers are exhausted; {4, last, generation} if the thread has another last number or generation;
-- {5, last, generation} if it has not reached the position; {6} if it has no such message; {7, revision} if the message has
-- another revision.
local token, key, digest, fencing = ARGV[2], ARGV[7], ARGV[8], ARGV[9]
local number, size, run, body = ARGV[10], ARGV[12], ARGV[13], ARGV[14]

if key ~= '' then
  local answered = first_result('d' .. key, digest)
  if answered == false then
    return {2}
  elseif answered then
    raise_fence(fencing)
    return {0, tonumber(string.match(answered, '^%d+ (%d+) ')), generation or ''}
  end
end
if is_fenced_off(fencing) then
  return fenced_off()
end
if not is_last(ARGV[3], ARGV[4]) then
  return {4, last, generation or ''}
end
if not has_reached(ARGV[5], ARGV[6]) then
  return {5, last, generation or ''}
end
local stored = redis.call('ZRANGEBYSCORE', MESSAGES, number, number)[1]
if not stored then
  return {6}
end
local thread_bytes, placed, updated = string.match(stored, '^%-?%d+ %d+ (%d+) (%d+)/?(%d*) ')
local revision = updated ~= '' and updated or placed ~= '0' and placed or number
if revision ~= ARGV[11] then
  return {7, tonumber(revision)}
end
if last >= SEQ_MAX then
  return {3}
end
if not indexed(token) then
  return {1}
end

local _, old_size, old_run = header(stored)
bytes = bytes - old_size + size
-- The event of the earlier update, which this one replaces.
if updated ~= '' then
  redis.call('ZREMRANGEBYSCORE', EVENTS, updated, updated)
end
happened(6, 0, tonumber(number), 0, '')
local changed_header = number .. ' ' .. size .. ' ' .. thread_bytes .. ' ' .. placed .. '/' .. int(last) .. ' '
-- Adds before it removes, so that a key with a time to live never becomes empty.
redis.call('ZADD', MESSAGES, number, changed_header .. run .. '\0' .. body)
redis.call('ZREM', MESSAGES, stored)
if run ~= '' then
  redis.call('ZADD', RUNS, 0, run_entry(run, tonumber(number), size))
end
if old_run ~= '' and (old_run ~= run or old_size ~= tonumber(size)) then
  redis.call('ZREM', RUNS, run_entry(old_run, tonumber(number), int(old_size)))
end
if key ~= '' then
  redis.call('HSET', THREAD, 'd' .. key, digest .. string.format('1 %.0f ', last) .. number)
end
raise_format()
save(fencing)
announce()
return {0, last, generation}
