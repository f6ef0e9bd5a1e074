-- Removes all messages and returns their number. The server frees them in the background. ARGV[2] is the fencing token or nothing.
if is_fenced_off(ARGV[2]) then
  return fenced_off()
end
raise_fence(ARGV[2])
if messages == 0 then
  forget_popped()
  return 0
end
return clear()
