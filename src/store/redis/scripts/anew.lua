#!lua flags=allow-oom
-- Begins a register again in a Redis that was emptied, for the node that owned it and has it in memory. Writes the
-- register's key and, for each shard, a head under a fresh token, at the last batch that clients were told of. So calls
-- still under way under an old token are refused, and a node that compares finds the line that it knows. The notice
-- keeps everybody from taking a shard until the register is complete and `post` removes the notice.
--
-- A head whose `seq` is not 0 vouches for a log, so such a shard gets one. Its only entry is the batch of that number
-- without its changes: only its time says anything.
--
-- KEYS[1] register: the register's own key
-- KEYS[2,4..] head: the head of each shard, from shard 0 on
-- KEYS[3,5..] log: its batches
-- ARGV[1] register: identity of the register, 32 hex digits
-- ARGV[2] format: version of the keys
-- ARGV[3] shards: number of shards
-- ARGV[4] created: now, in milliseconds since 1970, for people
-- ARGV[5] notice: its notice until it is complete
-- ARGV[6] owner: name of the node, for people
-- ARGV[7] node: identity of its process, 32 hex digits
-- ARGV[8] address: where other nodes reach it
-- ARGV[9] lease: length of the leases, in milliseconds
-- ARGV[10,19..] epoch: epoch of the new take-over
-- ARGV[11,20..] token: the token of the new owner, 32 hex digits
-- ARGV[12,21..] parent: the token that the take-over ends, 32 hex digits
-- ARGV[13,22..] seq: the last batch that clients were told of
-- ARGV[14,23..] digest: digest of the line up to that batch, 32 hex digits
-- ARGV[15,24..] time: time of the shard
-- ARGV[16,25..] records: format of its records
-- ARGV[17,26..] takes: its last take-overs, this one first, as `take` writes them
-- ARGV[18,27..] batch: the batch with the number `seq`, without changes
-- returns {`begun`}
-- returns {`there`}: at least one of the keys exists, and nothing was done
-- returns error NOPERM: the user lacks the right to a command that is needed from the first write on; nothing was changed
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
