#!lua flags=allow-oom
-- Removes the entry after the head from the log of a shard. It is a change that broke off before it changed any record.
-- No client was told of it, because a commit moves the head last. A stream accepts no number twice, even if the entry is
-- deleted, so the log is copied without that entry. A call copies a limited part, because Redis answers nobody else
-- meanwhile; nothing can be appended to the log before it is cut, so the parts are those of one log. Runs while the memory is
-- full as well: without it nobody could load the shard, and nothing would be let go.
--
-- KEYS[1] head: the head of the shard
-- KEYS[2] log: its batches
-- KEYS[3] spare: the copy of the log; gone at the end
-- ARGV[1] token: the token under which the caller owns the shard, 32 hex digits
-- ARGV[2] seq: the batch at which the head stands
-- ARGV[3] digest: its digest, 32 hex digits
-- ARGV[4] surplus: digest of the only entry after it, 32 hex digits
-- ARGV[5] copied: the last entry that was copied, or `-` to begin the copy
-- returns {`cut`}
-- returns {`more`, id}: copied as far as this entry, or `-` if the copy is gone; another call goes on
-- returns {`absent`, n}: the shard has no head; n is 1
-- returns {`fenced`, n, epoch}: the shard has another owner, or head and log do not end as stated; n is 1
-- returns error NOPERM: the user lacks the right to a command that is needed from the first write on; nothing was changed
-- writes log spare
local PART_BYTES = 4 * 1024 * 1024
local head = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'seq', 'digest')
if not head[1] then
    return {'absent', 1}
end
local behind = redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-0', '+', 'COUNT', 2)
local stands = head[1] ~= '0' and head[2] == ARGV[1] and head[3] == ARGV[2] and head[4] == ARGV[3]
if not stands or #behind ~= 1 or behind[1][2][2] ~= ARGV[4] then
    return {'fenced', 1, head[1]}
end
for _, command in ipairs(redis.acl_check_cmd and {'DEL', 'EXISTS', 'RENAME', 'XADD', 'XRANGE'} or {}) do
    if not redis.acl_check_cmd(command, KEYS[2], KEYS[3]) then
        return redis.error_reply("NOPERM its user may not run '" .. command .. "', and nothing was changed: give him the right "
            .. '(ACL SETUSER)')
    end
end
local from, bytes = '-', 0
if ARGV[5] == '-' then
    redis.call('DEL', KEYS[3])
elseif redis.call('XRANGE', KEYS[3], ARGV[5], ARGV[5])[1] then
    from = '(' .. ARGV[5]
else
    return {'more', '-'}
end
repeat
    local some = redis.call('XRANGE', KEYS[2], from, '(' .. behind[1][1], 'COUNT', 16)
    for _, entry in ipairs(some) do
        redis.call('XADD', KEYS[3], entry[1], unpack(entry[2]))
        from = '(' .. entry[1]
        for _, part in ipairs(entry[2]) do bytes = bytes + #part end
    end
    if #some == 16 and bytes >= PART_BYTES then
        return {'more', some[16][1]}
    end
until #some < 16
redis.call('DEL', KEYS[2])
if redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('RENAME', KEYS[3], KEYS[2])
end
return {'cut'}
