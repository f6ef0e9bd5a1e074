-- Returns a board without its tasks: agent, label, parent, and the number of tasks in each status.
local function shown_board(k, agent)
  local named = redis.call('HMGET', k.board, 'label', 'parent')
  local row = { agent, named[1], named[2] }
  for status = 0, 5 do
    row[#row + 1] =
      redis.call('ZCOUNT', k.order, int(status * SPAN), '(' .. int((status + 1) * SPAN))
  end
  return row
end
