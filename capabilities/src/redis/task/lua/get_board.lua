-- KEYS: the board's. ARGV: agent.
local k = keys_of(1)
if redis.call('EXISTS', k.board) == 0 then return { 'none' } end
return { 'board', shown_board(k, ARGV[1]) }
