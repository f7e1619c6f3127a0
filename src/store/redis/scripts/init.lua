#!lua flags=allow-oom
-- Makes a new register, or reports the one that is there. A register is its own key and one head for each shard, all
-- made at once.
--
-- KEYS[1] register: the register's own key
-- KEYS[2..] head: the heads to look for, from shard 0 on; at least as many as would be made
-- ARGV[1] register: identity of a register that is made now, 32 hex digits
-- ARGV[2] format: version of the keys
-- ARGV[3] shards: number of shards of a register that is made now
-- ARGV[4] created: now, in milliseconds since 1970, for people
-- ARGV[5] make: `1` if a new register may be made
-- ARGV[6] notice: notice of a register that is made now; empty if it may be served at once
-- returns {`made` or `there`, register, format, shards, heads, notice, records}: `heads` is how many of its heads exist,
--   `notice` is empty if it has none, and `records` is the format of the records of the first shard
-- returns {`none`}: there is no register, and none may be made
-- returns {`heads`, n}: there is no register, but the n-th head exists
-- writes register head
local there = redis.call('HMGET', KEYS[1], 'register', 'format', 'shards', 'moved')
-- If a register exists, only its own heads are counted.
local last = there[1] and 1 + (tonumber(there[3]) or 0) or #KEYS
local heads, first = 0, nil
for i = 2, math.min(#KEYS, last) do
    if redis.call('EXISTS', KEYS[i]) == 1 then
        heads = heads + 1
        first = first or i - 1
    end
end
if there[1] then
    local records = redis.call('HGET', KEYS[2], 'format')
    return {'there', there[1], there[2], there[3], heads, there[4] or '', records or '1'}
end
if first then
    return {'heads', first}
end
if ARGV[5] ~= '1' then
    return {'none'}
end
local zero = string.rep('0', 32)
for i = 2, 1 + tonumber(ARGV[3]) do
    redis.call('HSET', KEYS[i], 'epoch', '0', 'token', zero, 'parent', zero, 'seq', '0', 'digest', zero, 'time', '0',
        'generation', '0', 'blocks', '0', 'log_bytes', '0', 'networks', '0', 'owner', '', 'node', '', 'address', '', 'lease', '0')
end
redis.call('HSET', KEYS[1], 'register', ARGV[1], 'format', ARGV[2], 'shards', ARGV[3], 'created', ARGV[4])
if ARGV[6] ~= '' then
    redis.call('HSET', KEYS[1], 'moved', ARGV[6])
end
return {'made', ARGV[1], ARGV[2], ARGV[3], ARGV[3], ARGV[6], '1'}
