-- Sets the time to live ARGV[2], or removes it where that is empty. ARGV[3] is 1 where use renews it. Answers whether
-- the thread holds messages.
if messages == 0 then
  return 0
end
if ARGV[2] == '' then
  ends = nil
else
  live(ARGV[2], ARGV[3])
end
save()
return 1
