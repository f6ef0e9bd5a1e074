-- KEYS: the board's. ARGV: agent.
local k = keys_of(1)
local numbers, absent = board_numbers(k)
if not numbers then return absent.err and absent or { 'none' } end
return { 'board', shown_board(k, ARGV[1]) }
