-- KEYS: the stream, the number of entries that are kept, the users with what is known of each, the users in the order of
--   their names, the servers with the ends of their leases
-- ARGV: history, the stream's time to live (ms; 0: none), the epoch, id and token of the entry that the server knows, the
--   server, the lease (ms), the number of its users after the changes, the number of spare tokens, these; then for each
--   change: 1 or 0 (here or not), the user, what is known of it, a token
local epoch, id = last_of(KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5])
local own, lease = ARGV[6], tonumber(ARGV[7])
local time = redis.call('TIME')
local now = math.floor(time[1] * 1000 + time[2] / 1000)

local function of(server) return KEYS[3] .. ':' .. server end

local function tell(event, user, info, token)
  if info ~= '' then info = ',"info":' .. info end
  local users = redis.call('HLEN', KEYS[3])
  local data = '{"user":' .. cjson.encode(user) .. info .. ',"users":' .. users .. '}'
  id = id + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', history(KEYS[2], tonumber(ARGV[1])), position(epoch, id),
    'd', data, 'k', token, 't', 1, 'm', '{"event":"' .. event .. '"}')
end

local function lose(user, token)
  for _, server in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
    if redis.call('SISMEMBER', of(server), user) == 1 then return end
  end
  if redis.call('HDEL', KEYS[3], user) == 1 then
    redis.call('ZREM', KEYS[4], user)
    tell('leave', user, '', token)
  end
end

-- A server that was not heard of itself cannot tell who has gone.
local was_heard = tonumber(redis.call('ZSCORE', KEYS[5], own) or '0') >= now
redis.call('ZADD', KEYS[5], now + lease, own)
local spare = tonumber(ARGV[9])
for i = 10 + spare, #ARGV, 4 do
  local user, info, token = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if ARGV[i] == '1' then
    redis.call('SADD', of(own), user)
    if redis.call('HSETNX', KEYS[3], user, info) == 1 then
      redis.call('ZADD', KEYS[4], 0, user)
      tell('join', user, info, token)
    end
  else
    redis.call('SREM', of(own), user)
    lose(user, token)
  end
end
local used, more = 0, 0
while was_heard do
  local gone = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. now, 'LIMIT', 0, 1)[1]
  if not gone then break end
  if used == spare then more = 1 break end
  local user = redis.call('SPOP', of(gone))
  if user then
    used = used + 1
    lose(user, ARGV[9 + used])
  else
    redis.call('ZREM', KEYS[5], gone)
  end
end
local known = redis.call('SCARD', of(own))
-- Without a server there is nobody to tell.
for _, key in ipairs({ KEYS[3], KEYS[4], KEYS[5], of(own) }) do redis.call('PEXPIRE', key, lease * 10) end
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return { known == tonumber(ARGV[8]) and 1 or 0, more }
