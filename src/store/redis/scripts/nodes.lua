#!lua flags=allow-oom
-- Notes that a node is present, or removes it, and returns the nodes that are present. A name belongs to one process at
-- a time.
--
-- KEYS[1] nodes: the nodes by name, each as `PROCESS SEEN CARD`
-- KEYS[2] head: the head of the first shard
-- KEYS[3] register: the register's own key
-- ARGV[1] name: name of the node
-- ARGV[2] process: identity of its process, 32 hex digits
-- ARGV[3] card: what other nodes should know of it; empty if it leaves
-- ARGV[4] ttl: milliseconds after which a node that was not seen counts no longer
-- ARGV[5] reads: the latest format of records that the node reads
-- ARGV[6] register: identity of the register that the node keeps, 32 hex digits
-- returns {`nodes`, name, age, card, …}: the nodes that count; `age` is how long ago each was seen, in milliseconds
-- returns {`taken`, age}: another process with this name was seen `age` milliseconds ago
-- returns {`newer`, format}: the records are in a format that the node does not read, so it may not join
-- returns {`foreign`, register}: Redis has this other register; empty if nothing says which one it has
-- returns error NOPERM: the user lacks the right to a command that is needed from the first write on; nothing was changed
-- writes nodes
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function parsed(value)
    local process, seen, card = string.match(value, '^(%x+) (%d+) (.*)$')
    local age = now - (seen or 0)
    -- Seen in the future by more than `ttl`: the clock of this server went back, and nobody knows how long ago that was. Such
    -- a node does not count, and is not removed either.
    if age < -tonumber(ARGV[4]) then age = 100 * ARGV[4] end
    return process, math.max(age, 0), card
end
local register = redis.call('HMGET', KEYS[3], 'register')[1]
if register ~= ARGV[6] then
    return {'foreign', register or ''}
end
local format = redis.call('HMGET', KEYS[2], 'format')[1] or '1'
if ARGV[3] ~= '' and tonumber(format) > tonumber(ARGV[5]) then
    return {'newer', format}
end
local there = redis.call('HMGET', KEYS[1], ARGV[1])[1]
if there then
    local process, age = parsed(there)
    if process ~= ARGV[2] and age < tonumber(ARGV[4]) then
        return {'taken', string.format('%.0f', age)}
    end
end
for _, command in ipairs(redis.acl_check_cmd and {'HSET', 'HDEL', 'HGETALL'} or {}) do
    if not redis.acl_check_cmd(command, KEYS[1]) then
        return redis.error_reply("NOPERM its user may not run '" .. command .. "' any more, and nothing was changed: give him "
            .. 'the right again (ACL SETUSER)')
    end
end
if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', now) .. ' ' .. ARGV[3])
end
local answer, all = {'nodes'}, redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
    local _, age, card = parsed(all[at + 1])
    if age < tonumber(ARGV[4]) then
        answer[#answer + 1] = all[at]
        answer[#answer + 1] = string.format('%.0f', age)
        answer[#answer + 1] = card
    elseif age > 100 * ARGV[4] then
        redis.call('HDEL', KEYS[1], all[at])
    end
end
return answer
