#!lua flags=allow-oom
-- Takes a shard over: raises its epoch by one and gives it a fresh token. From then on the previous owner is fenced.
-- Runs while the memory is full as well, so that a server can start and let go of addresses.
--
-- **Who may take it.** The lease decides who may try, by the clock of this server; it never decides who may write. A
-- caller that names the token under which it owns the shard (`mine`) need not wait for a lease. It is refused if the
-- head has another token by now, because another owner may have written in between.
--
-- **What is remembered.** The field `takes` of the head has the last 16 take-overs, newest first, as `EPOCH PARENT
-- SEQ,…`: the epoch that began, the token that ended, and the last batch under that token. The log is trimmed; `takes`
-- still tells whether a batch that a client was told of is on this line.
--
-- **Unfinished registers.** A register with a notice of being filled or rewritten is not taken to be served: Redis went
-- back to before that was complete, and perhaps nobody knows what is missing. A notice in the head itself refuses every
-- caller. The exception is a replay (one with `digest`), which leads to the point at which the register was complete
-- (see `finished`).
--
-- **Format of the records.** Only a take-over raises it: the first one of a shard, a replay (its records are in that
-- format already), or any other one if all other nodes that were seen within the time of a lease read the later format.
--
-- KEYS[1] head: the head of the shard
-- KEYS[2] nodes: the nodes by name, each as `PROCESS SEEN CARD`
-- KEYS[3] register: the register's own key
-- ARGV[1] token: the token of the new owner, 32 hex digits
-- ARGV[2] owner: name of the new owner, for people
-- ARGV[3] node: identity of its process, 32 hex digits
-- ARGV[4] address: where other nodes reach it
-- ARGV[5] lease: length of its lease, in milliseconds
-- ARGV[6] mine: the token under which the caller owns the shard; empty if it does not own it
-- ARGV[7] last: the last token under which the caller owned the shard, whether or not it still does; empty if there is none
-- ARGV[8] seq: the batch that is known to be there under `last`
-- ARGV[9] digest: its digest, if the shard must stand at exactly that batch under `mine`; empty if it may be further
-- ARGV[10] reads: the latest format of records that the new owner reads
-- ARGV[11] wanted: the format in which it wants to write; `0`: the present one, or `reads` if the shard was never taken
-- ARGV[12] register: identity of the register that the caller keeps, 32 hex digits
-- ARGV[13] serves: `1` if the caller serves the register; else it fills or moves it
-- returns {`taken`, epoch, token, parent, seq, digest, time, generation, format, takes}: the head after the take-over
-- returns {`held`, owner, address, left}: another process has a lease for `left` more milliseconds
-- returns {`fenced`, epoch}: the head has another token than `mine`, or is not at the batch that `seq` and `digest` name
-- returns {`behind`, seq}: the head has the token `last`, but is at a batch before `seq`
-- returns {`absent`}: there is no head
-- returns {`foreign`, register}: Redis has this other register; empty if nothing says which one it has
-- returns {`moved`, notice}: the register was moved away, and nobody owns this one any more
-- returns {`unfinished`, notice}: the register is being filled or rewritten, and nobody serves it before that is complete
-- returns {`newer`, format}: the records are in a format that the new owner does not read
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
-- A call that is repeated under the same token changes nothing: it is the same take-over.
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
    -- A lease with more than twice its length left was given before the clock of this server went back: it does not count.
    elseif head[4] ~= ARGV[3] and tonumber(head[6] or 0) > now and head[6] - now <= 2 * ARGV[5] then
        return {'held', head[3], head[5] or '', string.format('%.0f', head[6] - now)}
    end
    local wanted = tonumber(ARGV[11])
    if head[1] == '0' then
        if wanted == 0 then wanted = tonumber(ARGV[10]) end
    elseif wanted > format and ARGV[9] == '' then
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
