-- Popped: the keys of the messages that pops with an idempotency key keep for a few minutes, sorted by their end. The names of
-- this key and of the thread's hash, which is the first key of a script, differ in their last part.
local POPPED = string.sub(KEYS[1], 1, -5) .. 'popped'

-- Removes the messages that pops kept.
local function forget_popped()
  for _, name in ipairs(redis.call('ZRANGE', POPPED, 0, -1)) do
    redis.call('UNLINK', name)
  end
  redis.call('UNLINK', POPPED)
end

