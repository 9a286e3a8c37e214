-- KEYS: the stream, the record of the publication, the number of entries that are kept
-- ARGV: history, the stream's time to live (ms; 0: none), the record's (ms), token, digest, and the
--   epoch, id and token of the entry that the server knows; then the fields of the entry
local seen = redis.call('GET', KEYS[2])
if seen then
  -- This writes, so that WAIT has something to wait for.
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  local epoch, id, token, digest = string.match(seen, '^(%d+)-(%d+) (%x+) (%x*)$')
  local code = 2
  if token == ARGV[4] then code = 0 elseif digest == ARGV[5] then code = 1 end
  return { code, epoch, id }
end
local epoch, id = last_of(KEYS[1], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8])
local at = position(epoch, id + 1)
local fields = {}
for i = 9, #ARGV do fields[i - 8] = ARGV[i] end
redis.call('XADD', KEYS[1], 'MAXLEN', history(KEYS[3], tonumber(ARGV[1])), at, unpack(fields))
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
redis.call('SET', KEYS[2], at .. ' ' .. ARGV[4] .. ' ' .. ARGV[5], 'PX', ARGV[3])
return { 0, string.format('%.0f', epoch), string.format('%.0f', id + 1) }
