#!lua flags=allow-oom
-- Proves for each of several shards that a batch lies on its line and that a token is still its owner's. Where replicas are
-- waited for it writes a mark, because WAIT covers what its own connection wrote, and with it all that was written before.
-- It is no script that only reads: a primary that became a replica, or lacks the replicas it needs, proves nothing.
--
-- KEYS[1,3..] head: the head of the shard
-- KEYS[2,4..] log: its batches
-- ARGV[1] mark: `1` if the mark is to be written
-- ARGV[2,5..] token: who asks, 32 hex digits
-- ARGV[3,6..] seq: a batch
-- ARGV[4,7..] digest: its digest, 32 hex digits
-- returns {`confirmed`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: the token is not the owner's, or the batch is not on the line
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
        -- What was trimmed is older than any owner's doubt; the head as it was taken has no entry of its own either.
        known = entry and entry[2][2] or (seq == '0' and digest)
    elseif seq ~= head[3] then
        known = nil
    end
    if head[1] == '0' or head[2] ~= token or known ~= digest then
        return {'fenced', i, head[1]}
    end
end
if ARGV[1] == '1' then
    -- One is enough: replicas take everything in one order.
    redis.call('HSET', KEYS[1], 'mark', ARGV[3])
end
return {'confirmed'}
