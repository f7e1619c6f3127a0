#!lua flags=allow-oom
-- Says of a register that it is unfinished, or was moved, or neither; provided that every shard is where it is expected.
-- A register that was moved is owned by nobody from here on: its heads say so, and no token is theirs. So that is said again
-- whatever they say: whoever did not hear whether enough replicas have it asks once more.
--
-- KEYS[1] register: what the register is
-- KEYS[2..] head: the head of each shard
-- ARGV[1] notice: what it says of its move; empty if nothing
-- ARGV[2] closed: `1` if its shards are not to be taken any more
-- ARGV[3] register: the one that is meant, 32 hex digits
-- ARGV[4,7..] token: of each shard, under which it is owned, 32 hex digits; empty for whoever owns it
-- ARGV[5,8..] seq: its last batch
-- ARGV[6,9..] digest: of that batch, 32 hex digits
-- returns {`posted`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: it is owned under another token, or ends with another batch
-- returns {`foreign`, register}: another register is there, or nothing says which one
-- returns error NOPERM: the user lacks a right that is needed after the first write
-- writes register head
local register = redis.call('HMGET', KEYS[1], 'register', 'moved')
if register[1] ~= ARGV[3] then
    return {'foreign', register[1] or ''}
end
local again = ARGV[2] == '1' and register[2] == ARGV[1]
for i = 2, #KEYS do
    local head = redis.call('HMGET', KEYS[i], 'epoch', 'token', 'seq', 'digest')
    local token = ARGV[3 * i - 2]
    if not head[1] then
        return {'absent', i - 1}
    end
    if token ~= '' and not again and (head[2] ~= token or head[3] ~= ARGV[3 * i - 1] or head[4] ~= ARGV[3 * i]) then
        return {'fenced', i - 1, head[1]}
    end
end
for _, command in ipairs(redis.acl_check_cmd and {'HSET', 'HDEL'} or {}) do
    if not redis.acl_check_cmd(command, KEYS[1]) then
        return redis.error_reply("NOPERM its user may not run '" .. command .. "' any more, and nothing was changed: give him "
            .. 'the right again (ACL SETUSER)')
    end
end
if ARGV[1] == '' then
    redis.call('HDEL', KEYS[1], 'moved')
else
    redis.call('HSET', KEYS[1], 'moved', ARGV[1])
end
for i = 2, #KEYS do
    if ARGV[2] == '1' then
        redis.call('HSET', KEYS[i], 'moved', ARGV[1], 'token', string.rep('0', 32), 'lease', '0')
    else
        redis.call('HDEL', KEYS[i], 'moved')
    end
end
-- A mark, as `confirm` writes it: WAIT covers what its own connection wrote, and what is said again changes nothing else.
redis.call('HSET', KEYS[2], 'mark', redis.call('HMGET', KEYS[2], 'seq')[1])
return {'posted'}
