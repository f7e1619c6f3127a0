#!lua flags=allow-oom
-- Moves IPv6 records that are in the wrong hash to the hash in which they are looked for (see `commit/sparse.lua`).
-- Earlier releases put some into wrong hashes if Redis was started in a locale in which letters come before digits.
--
-- KEYS[1] guard: never exists (see `commit.lua`)
-- KEYS[2] head: the head of the shard
-- ARGV[1] token: the token under which the caller owns the shard, 32 hex digits
-- ARGV[2,4..] network: the network of a hash to look through
-- ARGV[3,5..] low: the LOW of that hash: the first address that belongs there
-- returns {`placed`, count}: so many records were moved
-- returns {`absent`, n}: the shard has no head; n is 1
-- returns {`fenced`, n, epoch}: the shard has another owner; n is 1
-- returns {`twice`, key, field}: this record of the hash `key` also exists where it is looked for; those before it were moved
-- returns error NOPERM: the user lacks the right to a command that is needed from the first write on; nothing was changed
-- writes nothing
--   of KEYS, but IPv6 hashes and their indexes, whose names are derived from that of the head
local head = redis.call('HMGET', KEYS[2], 'epoch', 'token')
if not head[1] then
    return {'absent', 1}
end
if head[1] == '0' or head[2] ~= ARGV[1] then
    return {'fenced', 1, head[1]}
end
for _, command in ipairs(redis.acl_check_cmd and {'HSET', 'HDEL', 'ZADD', 'ZREM', 'EXISTS'} or {}) do
    if not redis.acl_check_cmd(command, KEYS[2]) then
        return redis.error_reply("NOPERM its user may not run '" .. command .. "', and nothing was changed: give him the right "
            .. '(ACL SETUSER)')
    end
end
local prefix, placed = string.sub(KEYS[2], 1, -5), 0
for at = 2, #ARGV, 2 do
    local network, low = ARGV[at], ARGV[at + 1]
    local index, base = prefix .. 'i6:' .. network, prefix .. '6:' .. network .. ':'
    local from = base .. low
    local all = redis.call('HGETALL', from)
    for n = 1, #all, 2 do
        local field = all[n]
        local right = redis.call('ZREVRANGEBYLEX', index, '[' .. field, '-', 'LIMIT', 0, 1)[1] or string.rep('0', 32)
        if right ~= low then
            if redis.call('HGET', base .. right, field) then
                return {'twice', from, field}
            end
            redis.call('HSET', base .. right, field, all[n + 1])
            redis.call('ZADD', index, 0, right)
            redis.call('HDEL', from, field)
            placed = placed + 1
        end
    end
    if redis.call('EXISTS', from) == 0 then
        redis.call('ZREM', index, low)
    end
end
return {'placed', placed}
