-- KEYS: the board's. ARGV: tasks.
local k = keys_of(1)
check_types(k)
local numbers, absent = board_numbers(k)
if not numbers then return absent end
return room_for(k, numbers, 1) or append(k, numbers, 1)
