-- Returns the thread's number of messages, its bytes, its greatest number and its generation. ARGV[2] is 'use' if this counts as a use of the
-- thread, and 'write' if a write with the fencing token ARGV[3], or nothing, is about to begin.
if ARGV[2] == 'write' and is_fenced_off(ARGV[3]) then
  return fenced_off()
end
if ARGV[2] == 'use' and renew() then
  save()
end
return {messages, bytes, last, generation or ''}
