-- A thread. Every script except the fast append includes this file, after popped.lua.
--
-- KEYS: 1 the thread's hash, 2 its messages, 3 the index of its runs, 4 its events that are not messages, 5 its
-- replacements, 6 the refused tokens. ARGV[1] is the channel of its notifications.
--
-- The hash holds the counters: `s` the greatest number, `c` that of the last clear, run clear, replacement, removal or update,
-- `n` the number of messages, `b` their bytes, `f` the format, which a fence or an update raises, `g` the generation, `i`
-- present after the thread was registered in the index, `w` the end of the last subscription's notice, `x` the fence: the
-- greatest fencing token with which a write succeeded. With a time to live: `t` its milliseconds, `r` 1 if use renews it, `e`
-- its end. The field `k` followed by an idempotency key has the result of the append with that key, and `d` that of the removal
-- or update.
--
-- Messages: sorted by their number, '<seq> <size> <thread bytes> <placed by> <run>' NUL '<body>'. After an update, '/' and the
-- number of the last update follow <placed by>. The revision is the last of the three that is not 0. The body is
-- 0x01 '<author>' NUL '<role>' NUL, each empty if the message has none, and the message, which may be compressed.
-- Runs: sorted by their bytes, '<run>' NUL '<seq + 2^20, in 16 digits> <size>'. A replacement reaches 999 below 0.
-- Events: sorted by their number, '<seq> <kind> <removed> <up to> <thread bytes> <placed> <run>'; kind 1 is a clear, 2
-- the clear of a run, 3 a replacement, 4 a removal, whose numbers take the place of the run, 5 a rewind, whose position does,
-- 6 an update, whose message is <up to>. It counts while the message names it as its last update.
-- Replacements: the numbers of the replacement events, sorted by their `up to`.
--
-- A sorted set's scores are exact up to 2^53. Appends stop 2^20 before that, so that events always have a number.
--
-- Messages and runs have an expiry in the server, so that plain reads observe it on time and the memory is freed without a
-- call. The counters stay until the next script records the expiry as a clear.

local THREAD, MESSAGES, RUNS, EVENTS, REPLACEMENTS, REFUSED = unpack(KEYS)
local SEQ_MAX = 9007199253692416
-- Keeps the numbers in the index of runs positive; greatest and offset together are 2^53.
local OFFSET = 1048576
-- The time for which a token stays refused: ten times the limit from an append's registration to its arrival.
local REFUSED_MS = 600000

local function announce()
  redis.pcall('PUBLISH', ARGV[1], '')
end

-- Reading each key's size fails for a key of another type, before the first write: scripts are not rolled back.
for _, key in ipairs({MESSAGES, RUNS, EVENTS, REPLACEMENTS}) do
  redis.call('ZCARD', key)
end
redis.call('SCARD', REFUSED)
local fields = redis.call('HMGET', THREAD, 's', 'c', 'n', 'b', 't', 'r', 'e', 'f', 'g', 'x')
if fields[1] and not supported(fields[8]) then
  return wrong_format(fields[8])
end
local last, changed = tonumber(fields[1] or 0), tonumber(fields[2] or 0)
local messages, bytes = tonumber(fields[3] or 0), tonumber(fields[4] or 0)
local ttl, renews, ends = tonumber(fields[5] or nil), fields[6] == '1', tonumber(fields[7] or nil)
local had_ttl = ends ~= nil
-- Nothing for a thread that was never written, or not since a version that drew none.
local generation = fields[9]
-- Decimal text, because a token may exceed 2^53.
local fence = fields[10]

-- Raises the format of the thread, for a change that programs of the earlier format do not support.
local function raise_format()
  if fields[8] ~= NEWEST then
    redis.call('HSET', THREAD, 'f', NEWEST)
  end
end

-- Remembers the token of a write, which must not be fenced off.
local function set_fence(token)
  if token ~= '' and token ~= fence then
    raise_format()
    fence = token
    redis.call('HSET', THREAD, 'x', fence)
  end
end

-- Writes the counters, and the fence if the write has a token, which must not be fenced off.
local function save(token)
  set_fence(token or '')
  if not generation then
    generation = draw(THREAD)
    redis.call('HSET', THREAD, 'g', generation)
  end
  redis.call('HSET', THREAD, 's', int(last), 'c', int(changed), 'n', int(messages), 'b', int(bytes))
  if messages == 0 then
    -- Later messages do not inherit the time to live.
    ends = nil
  end
  if ends then
    redis.call('HSET', THREAD, 't', int(ttl), 'r', renews and '1' or '0', 'e', int(ends))
    -- The server removes a key when its expiry is in the past, so this is the exact instant.
    redis.call('PEXPIREAT', MESSAGES, int(ends - 1))
    redis.call('PEXPIREAT', RUNS, int(ends - 1))
  elseif had_ttl then
    redis.call('HDEL', THREAD, 't', 'r', 'e')
    redis.call('PERSIST', MESSAGES)
    redis.call('PERSIST', RUNS)
  end
  had_ttl = ends ~= nil
end

-- Returns whether the token in decimal, which is empty if a write has none, is missing or lower than the thread's.
local function is_fenced_off(token)
  return fence and (#token < #fence or (#token == #fence and token < fence))
end

local function fenced_off()
  return redis.error_reply('LARDERFENCE ' .. fence)
end

-- Remembers the token of a write that succeeded on a thread that was written before, unless it has a greater one.
local function raise_fence(token)
  if fields[1] and not is_fenced_off(token) then
    set_fence(token)
  end
end

-- Returns whether the thread has this generation, which is empty if the caller names none.
local function has_generation(named)
  return named == '' or named == generation
end

-- Returns whether the thread's last number is this one, which is empty if the caller names none, with this generation.
local function is_last(number, named)
  return number == '' or (tonumber(number) == last and has_generation(named))
end

-- Returns whether the thread has reached this number, which is empty if the caller names none, with this generation.
local function has_reached(number, named)
  return (number == '' or tonumber(number) <= last) and has_generation(named)
end

-- Returns the first result of a call with an idempotency key, whose field of the hash is given: nothing if the key is new, and
-- `false` if it was used for another call.
local function first_result(field, digest)
  local answered = redis.call('HGET', THREAD, field)
  if answered then
    return string.sub(answered, 1, #digest) == digest and string.sub(answered, #digest + 1)
  end
end

-- Assigns a number to an event that changes stored messages, and writes the event.
local function happened(kind, removed, up_to, placed, run)
  last = last + 1
  changed = last
  redis.call('ZADD', EVENTS, int(last), string.format(
    '%.0f %d %.0f %.0f %.0f %d ', last, kind, removed, up_to, bytes, placed) .. run)
end

-- Removes all messages and the time to live, and returns the number of messages.
local function clear()
  local gone = messages
  forget_popped()
  redis.call('UNLINK', MESSAGES, RUNS, EVENTS, REPLACEMENTS)
  messages, bytes, ends = 0, 0, nil
  happened(1, gone, 0, 0, '')
  save()
  announce()
  return gone
end

-- Sets the time to live.
local function live(ttl_ms, renewing)
  ttl, renews = tonumber(ttl_ms), renewing == '1'
  ends = now_ms() + ttl
end

-- Restarts a time to live that use renews. Returns whether this changed it.
local function renew()
  local later = ends and renews and now_ms() + ttl
  if later and later > ends then
    ends = later
    return true
  end
  return false
end

-- Returns whether the thread is registered in the index, if needed with the given token, which must not be refused.
local function indexed(token)
  if redis.call('HEXISTS', THREAD, 'i') == 1 then
    return true
  end
  if token == '' or redis.call('SISMEMBER', REFUSED, token) == 1 then
    return false
  end
  redis.call('HSET', THREAD, 'i', token, 'f', fields[8] or FORMAT)
  return true
end

local function refuse(token)
  if token ~= '' then
    redis.call('SADD', REFUSED, token)
    redis.call('PEXPIRE', REFUSED, REFUSED_MS)
  end
end

local function run_entry(run, seq, size)
  return run .. '\0' .. string.format('%016.0f %s', seq + OFFSET, size)
end

-- Returns the number, the size and the run of a stored message.
local function header(message)
  local seq, size, run = string.match(message, '^(%-?%d+) (%d+) %d+ %d+/?%d* ([^%z]*)%z')
  return tonumber(seq), tonumber(size), run
end

local function place_one(seq, size, run, body, thread_bytes, placed_by)
  local number = int(seq)
  redis.call('ZADD', MESSAGES, number, string.format('%s %s %.0f %.0f ', number, size, thread_bytes, placed_by)
    .. run .. '\0' .. body)
  if run ~= '' then
    redis.call('ZADD', RUNS, 0, run_entry(run, seq, size))
  end
end

-- Records a passed time to live as a clear. The server may have freed the messages already.
if ends and messages > 0 and (ends <= now_ms() or redis.call('EXISTS', MESSAGES) == 0) then
  clear()
end
