#!lua flags=no-writes
-- Returns the last batches of a shard, newest first, and one entry before them for its digest, without its batch. Those
-- that may be under way are returned however long they are. Further ones are returned only up to `bytes`, because the
-- caller may be far away.
--
-- KEYS[1] log: its batches
-- ARGV[1] count: how many batches at most
-- ARGV[2] sure: how many of them however long they are
-- ARGV[3] bytes: how many bytes in total at most, if there are more of them
-- returns entries as XREVRANGE gives them
-- writes nothing
local count, sure, max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local found, bytes, to = {}, 0, '+'
while true do
    local entry = redis.call('XREVRANGE', KEYS[1], to, '-', 'COUNT', 1)[1]
    if not entry then break end
    bytes = bytes + #entry[2][4]
    local is_last = #found == count or (#found >= sure and bytes > max)
    if is_last then entry[2][4] = '' end
    found[#found + 1], to = entry, '(' .. entry[1]
    if is_last then break end
end
return found
