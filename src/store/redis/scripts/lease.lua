#!lua flags=allow-oom
-- Sets the lease of several shards anew, all of them or none: longer while their owner lives, none when it lets go.
--
-- Whose register the heads are need not be asked: a token is 128 random bits that its owner wrote here, so another register
-- has none of them.
--
-- KEYS[1..] head: the head of each shard
-- ARGV[1] lease: milliseconds from now on, by the clock of this server; `0` ends it
-- ARGV[2..] token: of each, the token under which it is owned, 32 hex digits
-- returns {`leased`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: its owner is another one
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
