-- KEYS: the board's. ARGV: tasks.
local k = keys_of(1)
check_types(k)
local numbers = board_numbers(k)
if not numbers then return { 'no_board' } end
return room_for(k, numbers, 1) or append(k, numbers, 1)
