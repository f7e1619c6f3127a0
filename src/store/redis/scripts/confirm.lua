#!lua flags=allow-oom
-- Proves for each of several shards that a batch is on its line and that the caller's token still owns it. If replicas
-- are to be waited for, the script writes a mark: WAIT covers what its own connection wrote last, and everything before
-- that. The script does not declare that it only reads. So Redis refuses it on a primary that became a replica, or that
-- lacks the replicas that it needs: such a server proves nothing.
--
-- KEYS[1,3..] head: the head of the shard
-- KEYS[2,4..] log: its batches
-- ARGV[1] mark: `1` to write the mark
-- ARGV[2,5..] token: the token of the caller, 32 hex digits
-- ARGV[3,6..] seq: the batch
-- ARGV[4,7..] digest: its digest, 32 hex digits
-- returns {`confirmed`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: the n-th shard is not owned under this token, or the batch is not on its line
-- writes head
for i = 1, #KEYS / 2 do
    local head = redis.call('HMGET', KEYS[2 * i - 1], 'epoch', 'token', 'seq', 'digest')
    local token, seq, digest = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
    if not head[1] then
        return {'absent', i}
    end
    local known = head[4]
    if tonumber(seq) < tonumber(head[3]) then
        local entry = redis.call('XRANGE', KEYS[2 * i], seq .. '-0', seq .. '-0')[1]
        -- A batch that was trimmed is not proved: an owner never asks for one so old. Batch 0 has no entry, as it is the
        -- empty beginning of every line.
        known = entry and entry[2][2] or (seq == '0' and digest)
    elseif seq ~= head[3] then
        known = nil
    end
    if head[1] == '0' or head[2] ~= token or known ~= digest then
        return {'fenced', i, head[1]}
    end
end
if ARGV[1] == '1' then
    -- One mark is enough: replicas receive all writes in the same order.
    redis.call('HSET', KEYS[1], 'mark', ARGV[3])
end
return {'confirmed'}
