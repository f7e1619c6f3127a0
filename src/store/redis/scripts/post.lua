#!lua flags=allow-oom
-- Sets the notice of a register (that it is unfinished, or was moved away) or removes it, if every shard is where the
-- caller expects it. The notices in the heads are removed, unless the register is closed.
--
-- Closing a register takes its shards away from their owners: every head gets the notice, no lease, and token 0, so
-- nobody can write or take a shard. A caller that does not know whether enough replicas have this repeats the call. If
-- the register has the notice already, such a call skips the comparison: the tokens to compare with were removed.
--
-- KEYS[1] register: the register's own key
-- KEYS[2..] head: the head of each shard
-- ARGV[1] notice: the new notice; empty to remove it
-- ARGV[2] closed: `1` to close the register
-- ARGV[3] register: identity of the register that is meant, 32 hex digits
-- ARGV[4,7..] token: for each shard, the token under which it is owned, 32 hex digits; empty if the shard is not compared
-- ARGV[5,8..] seq: for each shard, its last batch
-- ARGV[6,9..] digest: for each shard, the digest of that batch, 32 hex digits
-- returns {`posted`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: the n-th shard has another token, or ends with another batch
-- returns {`foreign`, register}: Redis has this other register; empty if nothing says which one it has
-- returns error NOPERM: the user lacks the right to a command that is needed from the first write on; nothing was changed
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
-- Writes a mark as `confirm` does: WAIT covers what its own connection wrote, and a repeated call may change nothing else.
redis.call('HSET', KEYS[2], 'mark', redis.call('HMGET', KEYS[2], 'seq')[1])
return {'posted'}
