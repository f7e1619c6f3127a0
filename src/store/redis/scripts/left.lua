#!lua flags=no-writes
-- Returns the last batches of a shard, newest first. Stops at the batch with which they would exceed `bytes`, because
-- the caller may be far away.
--
-- KEYS[1] log: its batches
-- ARGV[1] count: how many batches at most
-- ARGV[2] bytes: how many bytes in total at most
-- returns entries as XREVRANGE gives them
-- writes nothing
local found, bytes, to = {}, 0, '+'
while #found < tonumber(ARGV[1]) do
    local entry = redis.call('XREVRANGE', KEYS[1], to, '-', 'COUNT', 1)[1]
    bytes = bytes + (entry and #entry[2][4] or 0)
    if not entry or bytes > tonumber(ARGV[2]) then break end
    found[#found + 1], to = entry, '(' .. entry[1]
end
return found
