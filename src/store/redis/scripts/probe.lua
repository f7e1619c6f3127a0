#!lua
-- Runs every command that the other scripts run, on a key of its own, so that a missing right shows before the first
-- change and not in the middle of one. It leaves out two: RENAME, for whose right `cut` asks itself, and XREVRANGE,
-- which only `left` runs. Also reports how Redis encodes a full bucket. It asks for all of them before it writes: what is
-- refused in the middle would leave the key behind, and Redis would not say which command it was.
--
-- KEYS[1] probe: a key of its own; removed again at the end
-- ARGV[1] value: as long as a long record
-- ARGV[2] fields: number of fields of a full bucket
-- returns encoding of a hash with that many fields
-- writes probe
local key = KEYS[1]
local commands = {
    'DEL', 'EXISTS', 'HDEL', 'HGET', 'HGETALL', 'HINCRBY', 'HKEYS', 'HLEN', 'HMGET', 'HSET', 'OBJECT', 'TIME', 'XADD', 'XRANGE',
    'XTRIM', 'ZADD', 'ZRANGEBYLEX', 'ZREM', 'ZREVRANGEBYLEX', 'ZSCORE'
}
for _, command in ipairs(redis.acl_check_cmd and commands or {}) do
    local may
    if command == 'OBJECT' then
        may = redis.acl_check_cmd(command, 'ENCODING', key)
    else
        may = redis.acl_check_cmd(command, key)
    end
    if not may then
        return redis.error_reply("NOPERM its user may not run '" .. command .. "', and nothing was changed: give him the right "
            .. '(ACL SETUSER)')
    end
end
local all = {}
for n = 1, tonumber(ARGV[2]) do
    all[2 * n - 1], all[2 * n] = string.format('%032d', n), ARGV[1]
end
redis.call('DEL', key)
redis.call('HSET', key, unpack(all))
redis.call('HMGET', key, 'x')
redis.call('HGET', key, 'x')
redis.call('HGETALL', key)
redis.call('HKEYS', key)
redis.call('HLEN', key)
redis.call('HINCRBY', key, 'n', 1)
redis.call('HDEL', key, 'n')
local encoding = redis.call('OBJECT', 'ENCODING', key)
redis.call('DEL', key)
redis.call('ZADD', key, 0, 'x')
redis.call('ZREVRANGEBYLEX', key, '[x', '-', 'LIMIT', 0, 1)
redis.call('ZRANGEBYLEX', key, '-', '+', 'LIMIT', 0, 1)
redis.call('ZSCORE', key, 'x')
redis.call('ZREM', key, 'x')
redis.call('XADD', key, '1-0', 'x', 'x')
redis.call('XRANGE', key, '-', '+')
redis.call('XTRIM', key, 'MINID', '2-0')
redis.call('EXISTS', key)
redis.call('TIME')
redis.call('DEL', key)
return encoding
