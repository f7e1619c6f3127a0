#!lua flags=allow-oom
-- Notes that a node is here, or gone, and tells which nodes there are. A name belongs to one process at a time.
--
-- KEYS[1] nodes: by name, `PROCESS SEEN CARD`
-- KEYS[2] head: the head of the first shard
-- KEYS[3] register: what the register is
-- ARGV[1] name: of the node
-- ARGV[2] process: which process it is, 32 hex digits
-- ARGV[3] card: what the others should know of it; empty if it goes
-- ARGV[4] ttl: milliseconds after which a node that was not seen does not count
-- ARGV[5] reads: the latest format of records that the node reads
-- ARGV[6] register: the one that the node keeps, 32 hex digits
-- returns {`nodes`, name, age, card, …}: those that count, and how long ago each was seen, in milliseconds
-- returns {`taken`, age}: another process of this name was seen so long ago
-- returns {`newer`, format}: the records are in a format that it does not read, so it must not be here
-- returns {`foreign`, register}: another register is there, or nothing says which one
-- returns error NOPERM: the user lacks a right that is needed after the first write
-- writes nodes
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function parsed(value)
    local process, seen, card = string.match(value, '^(%x+) (%d+) (.*)$')
    local age = now - (seen or 0)
    -- Seen in the future: the clock of this server went back, and nobody knows how long ago that was.
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
