#!lua flags=no-writes
-- Proves for each of several shards that a batch lies on its line and that a token is still its owner's. Writes nothing:
-- it is what an answer without a change waits for.
--
-- KEYS[1,3..] head: the head of the shard
-- KEYS[2,4..] log: its batches
-- ARGV[1,4..] token: who asks, 32 hex digits
-- ARGV[2,5..] seq: a batch
-- ARGV[3,6..] digest: its digest, 32 hex digits
-- returns {`confirmed`}
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: the token is not the owner's, or the batch is not on the line
-- writes nothing
for i = 1, #KEYS / 2 do
    local head = redis.call('HMGET', KEYS[2 * i - 1], 'epoch', 'token', 'seq', 'digest')
    local token, seq, digest = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
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
return {'confirmed'}
