-- Removes all messages, and answers how many went. The server frees them in the background.
if messages == 0 then
  return 0
end
return clear()
