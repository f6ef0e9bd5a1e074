-- Removes all messages and returns their number. The server frees them in the background.
if messages == 0 then
  forget_popped()
  return 0
end
return clear()
