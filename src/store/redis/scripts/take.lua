#!lua flags=allow-oom
-- Becomes the owner of a shard: the next epoch, and a fresh token. Whoever held it before is fenced from here on. Works
-- while the memory is full, so that a server can start and let go.
--
-- KEYS[1] head: the head of the shard
-- ARGV[1] token: the new owner's, 32 hex digits
-- ARGV[2] owner: its name, for people
-- ARGV[3] lease: milliseconds of the store's time for which the shard is its own; `0` is none
-- returns {`taken`, epoch, token, parent, seq, digest, time, generation}: the head as it is now
-- returns {`absent`}: there is no head
-- writes head
local head = redis.call('HMGET', KEYS[1], 'epoch', 'token')
if not head[1] then
    return {'absent'}
end
-- Asked again under the same token it is the same take-over.
if head[2] ~= ARGV[1] or head[1] == '0' then
    local now = redis.call('TIME')
    local lease = '0'
    if ARGV[3] ~= '0' then
        lease = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3])
    end
    redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', head[1] + 1), 'token', ARGV[1], 'parent', head[2],
        'owner', ARGV[2], 'lease', lease)
end
local now = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'parent', 'seq', 'digest', 'time', 'generation')
table.insert(now, 1, 'taken')
return now
