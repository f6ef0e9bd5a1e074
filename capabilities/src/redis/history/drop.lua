-- Removes a thread with everything it ever was. KEYS: what the thread holds, and the refused tokens at the end. ARGV: the
-- token by which the index names it, and for how many milliseconds it stays refused.
local format = redis.pcall('HGET', KEYS[1], 'f')
if type(format) == 'string' and format ~= FORMAT then
  return wrong_format(format)
end
redis.call('SCARD', KEYS[#KEYS])
redis.call('UNLINK', unpack(KEYS, 1, #KEYS - 1))
if ARGV[1] ~= '' then
  redis.call('SADD', KEYS[#KEYS], ARGV[1])
  redis.call('PEXPIRE', KEYS[#KEYS], ARGV[2])
end
return 1
