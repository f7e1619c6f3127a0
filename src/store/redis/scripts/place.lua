#!lua flags=allow-oom
-- Brings records of IPv6 from hashes in which they lie astray to those in which they are looked for (see `commit/sparse.lua`).
-- Releases before this one put some there where Redis was started in a locale in which letters come before digits.
--
-- KEYS[1] guard: never there
-- KEYS[2] head: the head of the shard
-- ARGV[1] token: under which the shard is owned, 32 hex digits
-- ARGV[2,4..] network: whose hash it is
-- ARGV[3,5..] low: from which address on it is
-- returns {`placed`, count}: so many records lie elsewhere now
-- returns {`absent`, n}: the shard has no head
-- returns {`fenced`, n, epoch}: another owner
-- returns {`twice`, key, field}: that record lies where it is looked for and elsewhere, too; those before it were brought
-- returns error NOPERM: the user lacks a right that is needed after the first write
-- writes nothing
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
