-- Removes a thread with its counters. KEYS: the keys of the thread, then the refused tokens. ARGV: the channel, the
-- thread's token in the index, and the milliseconds for which the token stays refused.
local format = redis.pcall('HGET', KEYS[1], 'f')
if type(format) == 'string' and not supported(format) then
  return wrong_format(format)
end
redis.call('SCARD', KEYS[#KEYS])
forget_popped()
redis.call('UNLINK', unpack(KEYS, 1, #KEYS - 1))
if ARGV[2] ~= '' then
  redis.call('SADD', KEYS[#KEYS], ARGV[2])
  redis.call('PEXPIRE', KEYS[#KEYS], ARGV[3])
end
-- A subscription that waits is refused now and not at its next look.
redis.pcall('PUBLISH', ARGV[1], '')
return 1
