-- KEYS: the stream, the users with what is known of each, the users in the order of their names
-- ARGV: the user after whom the list begins, or '', and how many are wanted
local entry = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local last = entry and string.match(entry[1], '-(%d+)$') or '0'
local from = '-'
if ARGV[1] ~= '' then from = '(' .. ARGV[1] end
local reply = { last, redis.call('HLEN', KEYS[2]) }
for _, user in ipairs(redis.call('ZRANGEBYLEX', KEYS[3], from, '+', 'LIMIT', 0, ARGV[2])) do
  reply[#reply + 1] = user
  reply[#reply + 1] = redis.call('HGET', KEYS[2], user) or ''
end
return reply
