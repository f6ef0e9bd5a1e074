local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function int(n)
  return string.format('%.0f', n)
end

-- Draws the generation of a place: a random-looking number of 61 bits in hexadecimal. No place has the name at the same
-- instant twice. (A script's own random numbers are the same in every run.)
local function draw(name)
  local now = redis.call('TIME')
  return '1' .. string.sub(redis.sha1hex(now[1] .. ' ' .. now[2] .. ' ' .. name), 1, 15)
end

local function supported(found)
  return found == FORMAT or found == NEWEST
end

-- Returns the reply for data of another format. The client converts it to an error with both numbers.
local function wrong_format(found)
  return redis.error_reply('LARDERFORMAT ' .. (found or '0') .. ' ' .. FORMAT)
end

local function registered()
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return true
  end
  if ARGV[1] == '' or math.abs(now_ms() - tonumber(ARGV[2])) > 60000 then
    return false
  end
  local erased = redis.call('GET', KEYS[2])
  return not erased or tonumber(erased) <= tonumber(ARGV[1])
end
