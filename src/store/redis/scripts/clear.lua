#!lua flags=allow-oom
-- Takes away, some keys at a time, what was begun anew and is to be begun once more by who began it. Its heads go first, so
-- that what was sent before finds nothing to change; the register's key last, so that it is never taken for anything else.
-- Nothing goes of what anybody else wrote: such a head ends another token.
--
-- KEYS[1] register: what the register is
-- KEYS[2..] head: the head of each shard, from shard 0
-- ARGV[1] register: its identity, 32 hex digits
-- ARGV[2] notice: what it says of itself while it is written anew by who asks
-- ARGV[3] whole: `1` if the register's key goes, too
-- ARGV[4..] parent: of each shard, the token that was ended, 32 hex digits
-- ARGV[5..] gone: behind those, names of keys that go
-- returns {`cleared`}
-- returns {`there`}: something else is there, and nothing was done
-- writes register head
local there = redis.call('HMGET', KEYS[1], 'register', 'moved')
if there[1] ~= ARGV[1] or there[2] ~= ARGV[2] then
    return {'there'}
end
for i = 2, #KEYS do
    local parent = redis.call('HMGET', KEYS[i], 'parent')[1]
    if parent and parent ~= ARGV[2 + i] then
        return {'there'}
    end
end
for i = 2, #KEYS do
    redis.call('DEL', KEYS[i])
end
for at = #KEYS + 3, #ARGV do
    redis.call('DEL', ARGV[at])
end
if ARGV[3] == '1' then
    redis.call('DEL', KEYS[1])
end
return {'cleared'}
