-- KEYS: boards, a key that never exists. ARGV: the prefix of the conversation's keys, the agent to start after or
-- nothing, maximum boards.
local low = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local rows = {}
for _, agent in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], low, '+', 'LIMIT', 0, ARGV[3])) do
  local k = keys_named(ARGV[1], agent)
  rows[#rows + 1] = shown_board(k, agent)
end
return { 'boards', rows }
