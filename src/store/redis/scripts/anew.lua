#!lua flags=allow-oom
-- Begins a register anew that was emptied, for the node that owned it and has it in memory: its key, and for each shard a head
-- behind the last batch of which somebody was told, under a token that nobody had before. So whatever is still on its way
-- under the old one is refused, and whoever compares finds the line that he knows. Nobody takes a shard until `post` says
-- that all of it is there.
--
-- A line that goes on has a log: it begins with the batch in front of the first one, which says nothing but when that was.
--
-- KEYS[1] register: what the register is
-- KEYS[2,4..] head: the head of each shard, from shard 0
-- KEYS[3,5..] log: its batches
-- ARGV[1] register: its identity, 32 hex digits
-- ARGV[2] format: version of keys
-- ARGV[3] shards: number of shards
-- ARGV[4] created: now, in milliseconds since 1970, for people
-- ARGV[5] notice: what it says of itself until it is whole
-- ARGV[6] owner: name of the node, for people
-- ARGV[7] node: which process it is, 32 hex digits
-- ARGV[8] address: where the other nodes reach it
-- ARGV[9] lease: milliseconds for which the shards are its own
-- ARGV[10,19..] epoch: of the new take-over
-- ARGV[11,20..] token: the new owner's, 32 hex digits
-- ARGV[12,21..] parent: the token that it ends, 32 hex digits
-- ARGV[13,22..] seq: the last batch of which somebody was told
-- ARGV[14,23..] digest: of the line up to that batch, 32 hex digits
-- ARGV[15,24..] time: of the shard
-- ARGV[16,25..] records: in which format they are written
-- ARGV[17,26..] takes: the last take-overs, this one first, as `take` writes them
-- ARGV[18,27..] batch: one without changes, under that number
-- returns {`begun`}
-- returns {`there`}: something of the register is there, and nothing was done
-- returns error NOPERM: the user lacks a right that is needed after the first write
-- writes register head log
for i = 1, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then
        return {'there'}
    end
end
for _, command in ipairs(redis.acl_check_cmd and {'HSET', 'XADD'} or {}) do
    if not redis.acl_check_cmd(command, KEYS[1]) then
        return redis.error_reply("NOPERM its user may not run '" .. command .. "' any more, and nothing was changed: give him "
            .. 'the right again (ACL SETUSER)')
    end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'register', ARGV[1], 'format', ARGV[2], 'shards', ARGV[3], 'created', ARGV[4], 'moved', ARGV[5])
for i = 2, #KEYS, 2 do
    local first = 10 + 9 * (i / 2 - 1)
    local epoch, token, parent, seq, digest, at, records, takes, batch = unpack(ARGV, first, first + 8)
    local bytes = 0
    if seq ~= '0' then
        redis.call('XADD', KEYS[i + 1], seq .. '-0', 'digest', digest, 'batch', batch, 'at', time[1])
        bytes = #batch
    end
    redis.call('HSET', KEYS[i], 'epoch', epoch, 'token', token, 'parent', parent, 'seq', seq, 'digest', digest, 'time', at,
        'generation', '0', 'blocks', '0', 'log_bytes', bytes, 'networks', '0', 'owner', ARGV[6], 'node', ARGV[7], 'address', ARGV[8],
        'lease', string.format('%.0f', now + ARGV[9]), 'format', records, 'takes', takes, 'moved', ARGV[5])
end
return {'begun'}
