-- How the thread stands. ARGV[2] is 'use' where this counts as a use of the thread. Answers messages, bytes and the
-- greatest number given.
if ARGV[2] == 'use' and renew() then
  save()
end
return {messages, bytes, last}
