-- KEYS: the stream, the number of entries that are kept
-- ARGV: history, the stream's time to live (ms; 0: none), how long the number counts (ms), and the
--   epoch, id and token of the entry that the server knows
local epoch, id, is_new = last_of(KEYS[1], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6])
local own = tonumber(ARGV[1])
local most = history(KEYS[2], own)
if most == own then redis.call('SET', KEYS[2], own, 'PX', ARGV[3]) end
if is_new then
  redis.call('XADD', KEYS[1], 'MAXLEN', most, position(epoch, 0), 'b', '')
end
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local first = id + 1
local kept = redis.call('XRANGE', KEYS[1], position(epoch, 1), '+', 'COUNT', 1)[1]
if kept then first = tonumber(string.match(kept[1], '-(%d+)$')) end
return { string.format('%.0f', epoch), string.format('%.0f', id), string.format('%.0f', first),
  string.format('%.0f', most) }
