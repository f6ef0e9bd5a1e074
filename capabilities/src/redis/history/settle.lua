-- Returns the thread's number of messages, its bytes, its greatest number and its generation. ARGV[2] is 'use' if this counts as a use of the
-- thread.
if ARGV[2] == 'use' and renew() then
  save()
end
return {messages, bytes, last, generation or ''}
