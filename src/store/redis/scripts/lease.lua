#!lua flags=allow-oom
-- Sets when the leases of several shards end, for all of them or for none. A live owner prolongs them; an owner that
-- lets go ends them.
--
-- There is no check whose register the heads belong to: a token is 128 random bits that its owner wrote here, so no head
-- of another register has it.
--
-- KEYS[1..] head: the head of each shard
-- ARGV[1] lease: milliseconds from now, by the clock of this server; `0` ends it
-- ARGV[2..] token: for each shard, the token under which the caller owns it, 32 hex digits
-- returns {`leased`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: the n-th shard is not owned under this token
-- writes head
for i = 1, #KEYS do
    local head = redis.call('HMGET', KEYS[i], 'epoch', 'token')
    if not head[1] then
        return {'absent', i}
    end
    if head[2] ~= ARGV[i + 1] or head[1] == '0' then
        return {'fenced', i, head[1]}
    end
end
local lease = '0'
if ARGV[1] ~= '0' then
    local time = redis.call('TIME')
    lease = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1])
end
for i = 1, #KEYS do
    redis.call('HSET', KEYS[i], 'lease', lease)
end
return {'leased'}
