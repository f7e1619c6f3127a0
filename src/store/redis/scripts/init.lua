#!lua flags=allow-oom
-- Makes a new register, or tells which one is there. A register is its own key and a head for every shard, all at once.
--
-- KEYS[1] register: what the register is
-- KEYS[2..] head: the heads that are looked for, from that of shard 0, and at least those that would be made
-- ARGV[1] register: identity of a register that is made now, 32 hex digits
-- ARGV[2] format: version of keys
-- ARGV[3] shards: number of shards of a register that is made now
-- ARGV[4] created: now, in milliseconds since 1970, for people
-- ARGV[5] make: `1` if a new register may be made
-- ARGV[6] notice: what a register that is made now says of its move; empty where it is served
-- returns {`made` or `there`, register, format, shards, number of its heads found, what it says of its move, or nothing,
--   format of the records of the first shard}
-- returns {`none`}: there is no register, and none is to be made
-- returns {`heads`, n}: there is no register, but the n-th head exists
-- writes register head
local there = redis.call('HMGET', KEYS[1], 'register', 'format', 'shards', 'moved')
-- Of a register that is there no more than its own are counted.
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
