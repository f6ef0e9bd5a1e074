-- Replaces all messages up to a number by other messages.
--
-- KEYS[7] is a temporary key of the thread. ARGV: channel, token, up to, seen, generation or nothing, fencing token or nothing, then size, run and body of each message.
-- Returns {0, removed, number of the event, generation}; {1} if the thread is not registered in the index; {2} if `up to` or `seen` is
-- beyond the thread's last number; {3} if the thread lost messages since `seen`; {4} if the numbers are exhausted; {5} if
-- the thread has another generation.
local token, up_to, seen = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local placed = (#ARGV - 6) / 3
local CHUNK = 64

if is_fenced_off(ARGV[6]) then
  return fenced_off()
end
if not has_generation(ARGV[5]) then
  return {5}
end
if seen > last then
  return {2}
end
if changed > seen then
  return {3}
end
if last >= SEQ_MAX then
  return {4}
end
-- Also for an empty replacement, because its event must be erased with the namespace.
if not indexed(token) then
  return {1}
end

-- Calls `use` with the header of each message from `from` to `to`.
local function each(from, to, use)
  repeat
    local chunk = redis.call('ZRANGEBYSCORE', MESSAGES, from, to, 'LIMIT', 0, CHUNK)
    for _, message in ipairs(chunk) do
      local seq, size, run = header(message)
      use(seq, size, run)
      from = '(' .. int(seq)
    end
  until #chunk < CHUNK
end

local removed = redis.call('ZCOUNT', MESSAGES, '-inf', int(up_to))
local kept = redis.call('ZCOUNT', MESSAGES, '(' .. int(up_to), '+inf')

-- Returns the size of the removed messages if it is known without reading each: if the newest of them was appended after the
-- last removal, it records the thread's size at that point.
local function known_size()
  local newest = redis.call('ZREVRANGEBYSCORE', MESSAGES, int(up_to), '-inf', 'LIMIT', 0, 1)[1]
  local seq, size = string.match(newest or '', '^(%-?%d+) %d+ (%d+) ')
  return seq and tonumber(seq) > changed and tonumber(size)
end

-- Removes the messages from the index of runs by reading its entries, which have no bodies.
local function prune_runs()
  for _, entry in ipairs(redis.call('ZRANGE', RUNS, 0, -1)) do
    if string.match(entry, '%z(%d+) ') - OFFSET <= up_to then
      redis.call('ZREM', RUNS, entry)
    end
  end
end

-- Reads the shorter side; the sizes and runs of the other side follow from the totals.
if kept == 0 then
  redis.call('UNLINK', MESSAGES, RUNS)
  bytes = 0
elseif removed <= kept then
  local size_gone = known_size()
  if size_gone and redis.call('ZCARD', RUNS) <= 4 * removed then
    bytes = bytes - size_gone
    prune_runs()
  else
    each('-inf', int(up_to), function(seq, size, run)
      bytes = bytes - size
      if run ~= '' then
        redis.call('ZREM', RUNS, run_entry(run, seq, int(size)))
      end
    end)
  end
  redis.call('ZREMRANGEBYSCORE', MESSAGES, '-inf', int(up_to))
else
  redis.call('ZRANGESTORE', KEYS[7], MESSAGES, '(' .. int(up_to), '+inf', 'BYSCORE')
  redis.call('UNLINK', MESSAGES, RUNS)
  redis.call('RENAME', KEYS[7], MESSAGES)
  bytes = 0
  each('-inf', '+inf', function(seq, size, run)
    bytes = bytes + size
    if run ~= '' then
      redis.call('ZADD', RUNS, 0, run_entry(run, seq, int(size)))
    end
  end)
end
messages = kept + placed
for at = 7, #ARGV, 3 do
  bytes = bytes + ARGV[at]
end
local seq = up_to - placed
for at = 7, #ARGV, 3 do
  seq = seq + 1
  place_one(seq, ARGV[at], ARGV[at + 1], ARGV[at + 2], bytes, last + 1)
end
-- The new messages can take the numbers of these events. The following event replaces them.
for _, covered in ipairs(redis.call('ZRANGEBYSCORE', REPLACEMENTS, '-inf', int(up_to))) do
  redis.call('ZREMRANGEBYSCORE', EVENTS, covered, covered)
end
redis.call('ZREMRANGEBYSCORE', REPLACEMENTS, '-inf', int(up_to))
redis.call('ZREMRANGEBYSCORE', EVENTS, '-inf', int(up_to))
happened(3, removed, up_to, placed, '')
redis.call('ZADD', REPLACEMENTS, int(up_to), int(last))
save(ARGV[6])
announce()
return {0, removed, last, generation}
