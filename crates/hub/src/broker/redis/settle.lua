-- KEYS: the process of Redis that was there last, and when it came
-- ARGV: the process that is there now
-- Returns for how many microseconds it has been there.
local now = redis.call('TIME')
local at = now[1] * 1000000 + now[2]
local known = redis.call('GET', KEYS[1])
if known == ARGV[1] then
  return { string.format('%.0f', math.max(at - tonumber(redis.call('GET', KEYS[2]) or '0'), 0)) }
end
redis.call('SET', KEYS[1], ARGV[1])
-- Without an earlier process there is nothing that could be missing.
if not known then at = 0 end
redis.call('SET', KEYS[2], string.format('%.0f', at))
if not known then return { string.format('%.0f', now[1] * 1000000) } end
return { '0' }
