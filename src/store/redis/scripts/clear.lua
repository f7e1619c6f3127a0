#!lua flags=allow-oom
-- Removes a register that the caller began by `anew`, so that the caller can begin it once more. This takes several
-- calls, each of which removes some keys. The heads go first, so that calls sent earlier find nothing to change. The
-- register's own key goes last, so that what remains is never taken for anything else. Nothing that another node wrote
-- is removed: the take-overs of its heads ended other tokens.
--
-- KEYS[1] register: the register's own key
-- KEYS[2..] head: the head of each shard, from shard 0 on
-- ARGV[1] register: identity of the register, 32 hex digits
-- ARGV[2] notice: the notice that `anew` of this caller gives it
-- ARGV[3] whole: `1` to remove the register's own key as well
-- ARGV[4..] parent: for each shard, the token that the caller's take-over ended, 32 hex digits
-- ARGV[5..] gone: after all of those, names of other keys to remove
-- returns {`cleared`}
-- returns {`there`}: the register has another identity or notice, or a head another parent; nothing was done
-- writes register head
--   and the keys in `gone`
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
