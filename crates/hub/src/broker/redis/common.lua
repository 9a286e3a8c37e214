-- What both scripts begin with. A position is EPOCH-ID; both numbers are less than 2^53.
local function position(epoch, id)
  return string.format('%.0f-%.0f', epoch, id)
end

local function token_of(entry)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'k' then return entry[2][i + 1] end
  end
end

-- Returns the last position of a stream, and whether it has to begin anew: because there is no
-- entry, or because the stream is not the one that the server knows, which has the entry EPOCH-ID
-- with that token. The new epoch is greater than any that was there or is known.
local function last_of(stream, epoch, id, token)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  local has, at = 0, 0
  if entry then
    local e, i = string.match(entry[1], '^(%d+)-(%d+)$')
    has, at = tonumber(e), tonumber(i)
  end
  local holds = entry and not (has < epoch or (has == epoch and at < id))
  if holds and has == epoch and token ~= '' then
    local known = redis.call('XRANGE', stream, position(epoch, id), position(epoch, id))[1]
    holds = not known or token_of(known) == token
  end
  if holds then return has, at, false end
  local top = 0
  if redis.call('EXISTS', stream) == 1 then
    local info = redis.call('XINFO', 'STREAM', stream)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        top = tonumber(string.match(info[i + 1], '^(%d+)'))
      end
    end
  end
  local now = redis.call('TIME')
  return math.max(now[1] * 1000000 + now[2], epoch + 1, top + 1), 0, true
end

-- Returns how many entries are kept: as many as the server wants that wants the most.
local function history(key, own)
  return math.max(tonumber(redis.call('GET', key) or '0'), own)
end
