-- Sets the time to live ARGV[2], or removes it if that is empty. ARGV[3] is 1 if use renews it. Returns whether the
-- thread has messages. ARGV[4] is the fencing token or nothing.
if is_fenced_off(ARGV[4]) then
  return fenced_off()
end
if messages == 0 then
  return 0
end
if ARGV[2] == '' then
  ends = nil
else
  live(ARGV[2], ARGV[3])
end
save(ARGV[4])
return 1
