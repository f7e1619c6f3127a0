#!lua flags=allow-oom
-- Becomes the owner of a shard: the next epoch, and a fresh token. Whoever held it before is fenced from here on. Works
-- while the memory is full, so that a server can start and let go.
--
-- A lease decides who may try, by the clock of this server; it never decides who may write. Whoever went on from a token
-- of its own (`mine`) may do so whatever the lease says, and may not if that token is no longer the owner's: between the
-- two somebody else may have written.
--
-- The head remembers the last 16 take-overs, newest first, in its field `takes`: `EPOCH PARENT SEQ,…`, the epoch that each
-- began, the token that it ended and the last batch under that. The log is trimmed; by these it is told later whether
-- what somebody was answered is on this line.
--
-- The head may be another register's, which was put in the place of the one that the taker keeps: then nothing is taken.
-- Nor by who is to serve it while it says that it is unfinished: it went back to before that was over, and what is missing
-- nobody may know. But for what is played again, which leads to where it was whole (see `finished`).
--
-- The format of the records rises here and nowhere else, and only when every node that is there reads the later one.
--
-- KEYS[1] head: the head of the shard
-- KEYS[2] nodes: by name, `PROCESS SEEN CARD`
-- KEYS[3] register: what the register is
-- ARGV[1] token: the new owner's, 32 hex digits
-- ARGV[2] owner: its name, for people
-- ARGV[3] node: which process it is, 32 hex digits
-- ARGV[4] address: where the other nodes reach it
-- ARGV[5] lease: milliseconds for which the shard is its own
-- ARGV[6] mine: the token under which it owned the shard until now; empty where it begins anew
-- ARGV[7] last: the last token under which it owned the shard, whether or not it still does; empty if there is none
-- ARGV[8] seq: the batch that it knows to be there under that token
-- ARGV[9] digest: its digest, if the shard must stand at exactly that batch; empty: there or further
-- ARGV[10] reads: the latest format of records that the new owner reads
-- ARGV[11] wanted: the format in which it is to write; 0: that of the shard, or the latest where nobody ever took it
-- ARGV[12] register: the one that the taker keeps, 32 hex digits
-- ARGV[13] serves: `1` if it takes the register to serve it, and not to fill or to move it
-- returns {`taken`, epoch, token, parent, seq, digest, time, generation, format, takes}: the head as it is now
-- returns {`held`, owner, address, left}: another node owns it for so many milliseconds more
-- returns {`fenced`, epoch}: somebody else took it since `mine`
-- returns {`behind`, seq}: under the token `last` it is further back than it was, and nothing was done
-- returns {`absent`}: there is no head
-- returns {`foreign`, register}: it is this other one's, or nothing says whose it is
-- returns {`moved`, notice}: the register is somewhere else, and nobody owns this one any more
-- returns {`unfinished`, notice}: it is being moved here, or written anew, and nobody serves it before that is over
-- returns {`newer`, format}: the records are in a format that it does not read
-- writes head
local head = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'owner', 'node', 'address', 'lease', 'seq', 'digest', 'moved', 'format', 'takes')
if not head[1] then
    return {'absent'}
end
local register = redis.call('HMGET', KEYS[3], 'register', 'moved')
if register[1] ~= ARGV[12] then
    return {'foreign', register[1] or ''}
end
local notice = head[9] or ARGV[13] == '1' and register[2]
if notice and string.sub(notice, 1, 6) == 'moved ' then
    return {'moved', notice}
elseif notice and ARGV[9] == '' then
    return {'unfinished', notice}
end
local format = tonumber(head[10] or 1)
if format > tonumber(ARGV[10]) then
    return {'newer', string.format('%.0f', format)}
end
-- Asked again under the same token it is the same take-over.
if head[2] ~= ARGV[1] or head[1] == '0' then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    if head[2] == ARGV[7] and tonumber(head[7]) < tonumber(ARGV[8]) then
        return {'behind', head[7]}
    end
    if ARGV[6] ~= '' then
        if head[2] ~= ARGV[6] or (ARGV[9] ~= '' and (head[7] ~= ARGV[8] or head[8] ~= ARGV[9])) then
            return {'fenced', head[1]}
        end
    -- A lease that ends later than any that is given now is from a clock that went back.
    elseif head[4] ~= ARGV[3] and tonumber(head[6] or 0) > now and head[6] - now <= 2 * ARGV[5] then
        return {'held', head[3], head[5] or '', string.format('%.0f', head[6] - now)}
    end
    local wanted = tonumber(ARGV[11])
    if head[1] == '0' then
        if wanted == 0 then wanted = tonumber(ARGV[10]) end
    elseif wanted > format and ARGV[6] == '' then
        local nodes = redis.call('HGETALL', KEYS[2])
        for at = 1, #nodes, 2 do
            local seen, card = string.match(nodes[at + 1], '^%x+ (%d+) (.*)$')
            local reads = string.match(card or '', '^%S+ %S+ %S+ %S+ %S+ (%d+)$') or 1
            if nodes[at] ~= ARGV[2] and now - (seen or 0) < tonumber(ARGV[5]) and tonumber(reads) < wanted then
                wanted = format
            end
        end
    end
    format = math.max(format, wanted)
    local takes, kept = string.format('%.0f %s %s', head[1] + 1, head[2], head[7]), 1
    for take in string.gmatch(head[11] or '', '[^,]+') do
        if kept < 16 then takes, kept = takes .. ',' .. take, kept + 1 end
    end
    redis.call('HSET', KEYS[1], 'takes', takes, 'format', string.format('%.0f', format), 'epoch', string.format('%.0f', head[1] + 1), 'token', ARGV[1], 'parent', head[2],
        'owner', ARGV[2], 'node', ARGV[3], 'address', ARGV[4], 'lease', string.format('%.0f', now + ARGV[5]))
end
local now = redis.call('HMGET', KEYS[1], 'epoch', 'token', 'parent', 'seq', 'digest', 'time', 'generation', 'takes')
now[8], now[9] = string.format('%.0f', format), now[8] or ''
table.insert(now, 1, 'taken')
return now
