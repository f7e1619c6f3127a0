#!lua
-- Applies one batch for each of several shards: all of them or none. Whatever can be refused is looked at before the
-- first write, because an error does not roll back.
--
-- A batch has its arguments behind one another: a name, the batch itself, and groups of keys that change. A group is
-- records that lie in one hash (`c`: configuration, `4`: a bucket of IPv4) or IPv6 addresses in ascending order (`6`),
-- whose hashes are found here. Derived from a head's key `…:head`: `…:c:NETWORK` configuration, `…:4:NETWORK:LOW` and
-- `…:6:NETWORK:LOW` records, `…:i4:NETWORK` and `…:i6:NETWORK` which LOWs there are, `…:k:NETWORK` lengths of blocks.
-- So a Redis cluster does not know them, and while it moves the slot key by key a script would find some gone, or break off
-- between two writes. The guard is named and never there: while the slot is moved the call is refused before it begins.
--
-- A key that is not there is taken for one that never was only if nothing vouches for it: a head for its log and networks,
-- `networks` for the indexes of each, an index for its hashes.
--
-- KEYS[1] guard: never there
-- KEYS[2,5..] head: the head of the shard
-- KEYS[3,6..] log: its batches
-- KEYS[4,7..] networks: those that have anything, and which of `c`, `4` (its i4), `6` (its i6), `k`
-- ARGV[1] batches: how many follow
-- ARGV[2] keep_seconds: for how long batches stay in the log
-- ARGV[3] keep_bytes: how many bytes of batches stay in a shard's log
-- ARGV[4..] batch: epoch token seq parent digest time generation bytes blocks size groups group…
-- ARGV group: kind network low count expects field… expect… record…
--   expects is count, or `0`: nothing is expected anywhere; expect is a mark as its record has it, or nothing
--   record is what is there afterwards, or nothing
-- returns {`applied`}: each of them now, or before
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: another owner, or another line
-- returns {`gap`, n, seq}: batches are missing after seq
-- returns {`back`, n}: time or generation lower than in the batch before
-- returns {`lost`, n, key}: a key that is vouched for is gone
-- returns {`mismatch`, n, kind, network, low, field, found}: something else is there; found is its record, or nothing
-- returns error NOPERM: the user lacks a right that is needed after the first write
-- writes head log networks
local call, sub, byte, format = redis.call, string.sub, string.byte, string.format
local argv, unpack, min = ARGV, unpack, math.min
-- Arguments of one call, bounded by Lua's stack; how long a hash of IPv6 may grow, and how many addresses stay in it
-- when it is cut; how often the log is trimmed; up to how many addresses of a hash are few.
local STRIP, LEAF_MAX, LEAF_CUT, TRIM_EVERY, FEW = 1000, 96, 64, 64, 8
local ZERO = string.rep('0', 32)
-- Whatever is called after the first write.
local LATER = {'XADD', 'XRANGE', 'XTRIM', 'HSET', 'HDEL', 'HINCRBY', 'HLEN', 'HGETALL', 'ZADD', 'ZREM', 'EXISTS', 'DEL'}
-- Keys of a network by their letters in `networks`.
local LETTERS, BELOW = {'c', '4', '6', 'k'}, {c = 'c:', ['4'] = 'i4:', ['6'] = 'i6:', k = 'k:'}

-- Keys that are waited for: each must be there, or is a hash that may be new. Looked for together, before anything is
-- written and before anything else is refused. Of each, the plan that needs it, or the part that is this hash.
local awaited, whose, waits = {}, {}, 0

local function await(key, of)
    waits = waits + 1
    awaited[waits], whose[waits] = key, of
end

-- Notes what there is of a network, to be looked for. What only puts records into a hash that is there does without.
local function vouch(plan, network)
    if plan.kinds[network] then return end
    local kinds = call('HGET', plan.networks, network) or ''
    for n = 1, #kinds do await(plan.prefix .. BELOW[sub(kinds, n, n)] .. network, plan) end
    plan.kinds[network] = kinds
end

-- Length of what a record covers: behind version, kind and mark.
local function length_of(record)
    local at = 3
    while byte(record, at) >= 128 do at = at + 1 end
    return byte(record, at + 1)
end

-- First address of the prefix of this length in which an address lies; both in hex.
local function base_of(address, length)
    local whole = math.floor(length / 4)
    if whole >= #address then return address end
    local digit = tonumber(sub(address, whole + 1, whole + 1), 16)
    local unit = 2 ^ (4 - length % 4)
    return sub(address, 1, whole) .. format('%x', digit - digit % unit) .. string.rep('0', #address - whole - 1)
end

-- Where the prefix ends: its last address.
local function last_of(address, length)
    local whole = math.floor(length / 4)
    if whole >= #address then return address end
    local digit = tonumber(sub(address, whole + 1, whole + 1), 16)
    return sub(address, 1, whole) .. format('%x', digit + 2 ^ (4 - length % 4) - 1)
        .. string.rep('f', #address - whole - 1)
end

-- The hash in which an address is, its field there, and from which address on the hash is.
local function place_of(prefix, kind, network, address)
    if kind == '4' then
        local number = tonumber(address, 16)
        local low = format('%08x', number - number % 64)
        return prefix .. '4:' .. network .. ':' .. low, tostring(number % 64), low
    end
    local low = call('ZREVRANGEBYLEX', prefix .. 'i6:' .. network, '[' .. address, '-', 'LIMIT', 0, 1)[1] or ZERO
    return prefix .. '6:' .. network .. ':' .. low, address, low
end

-- Is this hash gone, although its index has it? Tells also whether it is not there.
local function hash_gone(prefix, kind, network, low, key)
    local absent = call('EXISTS', key) == 0
    return absent and call('ZSCORE', prefix .. 'i' .. kind .. ':' .. network, low), absent
end

-- Looks for what is awaited. Tells the first key that is gone, as the answer to be given.
local function missing()
    local from = 1
    while from <= waits do
        local to = min(from + STRIP - 1, waits)
        local short = call('EXISTS', unpack(awaited, from, to)) < to - from + 1
        for at = from, short and to or 0 do
            local p, gone = whose[at], nil
            if p.plan then
                gone, p.absent = hash_gone(p.plan.prefix, p.kind, p.network, p.low, p.key)
                -- What vouches for its network is awaited then, too.
                if p.absent and not gone then vouch(p.plan, p.network) end
            else
                gone = call('EXISTS', awaited[at]) == 0
            end
            if gone then return {'lost', (p.plan or p).i, awaited[at]} end
        end
        from = to + 1
    end
    waits = 0
end

local function address_of(kind, low, field)
    return kind == '4' and format('%08x', tonumber(low, 16) + field) or field
end

-- The parts of a group: each is one hash, and the strips of arguments that concern it.
local function parts_of(prefix, g)
    if g.kind == 'c' then
        g.key = prefix .. 'c:' .. g.network
        return {g}
    elseif g.kind == '4' then
        g.key = prefix .. '4:' .. g.network .. ':' .. g.low
        return {g}
    end
    local parts, index, base = {}, prefix .. 'i6:' .. g.network, prefix .. '6:' .. g.network .. ':'
    local at = g.first
    while at <= g.last do
        local address = argv[at]
        local low = call('ZREVRANGEBYLEX', index, '[' .. address, '-', 'LIMIT', 0, 1)[1]
        local high = call('ZRANGEBYLEX', index, '(' .. address, '+', 'LIMIT', 0, 1)[1]
        low = low or ZERO
        local p = {kind = '6', network = g.network, low = low, key = base .. low, first = at, expect = g.expect,
            record = g.record, plan = g.plan}
        repeat at = at + 1 until at > g.last or (high and argv[at] >= high)
        p.last = at - 1
        parts[#parts + 1] = p
    end
    return parts
end

-- Compares what is there with what is expected. Tells the first field that differs, and counts blocks that go.
local function differs(p, watch, lengths)
    p.fresh = true
    for from = p.first, p.last, STRIP do
        local to = min(from + STRIP - 1, p.last)
        local found = call('HMGET', p.key, unpack(argv, from, to))
        for at = from, to do
            local there, expect = found[at - from + 1], p.expect and argv[at + p.expect] or ''
            if expect == '' then
                if there then return at, there end
            elseif not there or sub(there, 3, 2 + #expect) ~= expect then
                return at, there
            else
                p.fresh = false
                if watch and p.kind ~= 'c' then
                    local length = byte(there, 3 + #expect)
                    if length ~= (p.kind == '4' and 32 or 128) then
                        local name = p.kind .. '/' .. length
                        lengths[name] = (lengths[name] or 0) - 1
                    end
                end
            end
        end
    end
end

-- Lengths of blocks in use in a network, by kind; and of each what there is at the bases that were asked for.
local function lengths_of(prefix, network)
    local list, stored = call('HGETALL', prefix .. 'k:' .. network), {['4'] = {}, ['6'] = {}}
    for n = 1, #list, 2 do
        local of = stored[sub(list[n], 1, 1)]
        of[#of + 1] = {length = tonumber(sub(list[n], 3)), at = {}}
    end
    return stored
end

local function add(blocks, from, record, length)
    blocks[#blocks + 1] = {from = from, upto = last_of(from, length), length = length, record = record}
end

-- Blocks of these lengths that may lie around what is put into a part; second, a key that is gone. Those that begin in its hash:
-- of a few addresses the bases are asked for, of more the whole hash. Those that begin before it lie around its first address: one
-- of each length, which is the same for many parts.
local function blocks_around(prefix, p, around)
    local blocks, all, width = {}, {}, p.kind == '4' and 32 or 128
    if p.last - p.first >= FEW and #around > 0 then
        all = p.absent and all or call('HGETALL', p.key)
    elseif not p.absent then
        local fields, seen = {}, {}
        for at = p.first, p.last do
            local address = address_of(p.kind, p.low, argv[at])
            for n = 1, #around do
                local base = base_of(address, around[n].length)
                if base >= p.low and not seen[base] then
                    seen[base] = true
                    fields[#fields + 1] = p.kind == '4' and tostring(tonumber(base, 16) % 64) or base
                end
            end
        end
        local found = #fields > 0 and call('HMGET', p.key, unpack(fields)) or {}
        for n = 1, #fields do
            if found[n] then all[#all + 1], all[#all + 2] = fields[n], found[n] end
        end
    end
    for n = 1, #all, 2 do
        local length = length_of(all[n + 1])
        if length < width then add(blocks, address_of(p.kind, p.low, all[n]), all[n + 1], length) end
    end
    for n = 1, #around do
        local one = around[n]
        local base = base_of(p.low, one.length)
        if base < p.low and one.at[base] == nil then
            local key, field, low = place_of(prefix, p.kind, p.network, base)
            local there = call('HMGET', key, field)[1]
            if not there and hash_gone(prefix, p.kind, p.network, low, key) then return nil, key end
            one.at[base] = there and length_of(there) == one.length and there
        end
        if base < p.low and one.at[base] then add(blocks, base, one.at[base], one.length) end
    end
    return blocks
end

-- What lies in the way of a put: a block around it, or for a block anything inside it; third, a key that is gone. What this
-- batch changes itself is left out: its own puts were compared with each other before it was sent.
local function in_the_way(prefix, p, stored, touched, lengths)
    local width = p.kind == '4' and 32 or 128
    local blocks, key = blocks_around(prefix, p, stored[p.kind])
    if key then return nil, nil, key end
    for at = p.first, p.last do
        local address, record = address_of(p.kind, p.low, argv[at]), argv[at + p.record]
        local length = record == '' and width or length_of(record)
        for n = 1, record == '' and 0 or #blocks do
            local one = blocks[n]
            local is_around = one.length < length and address >= one.from and address <= one.upto
            if is_around and not touched[p.kind .. one.from] then return at, one.record end
        end
        if length < width then
            local name = p.kind .. '/' .. length
            lengths[name] = (lengths[name] or 0) + 1
            local last, index = last_of(address, length), prefix .. 'i' .. p.kind .. ':' .. p.network
            local low = call('ZREVRANGEBYLEX', index, '[' .. address, '-', 'LIMIT', 0, 1)[1] or address
            local from = '['
            repeat
                local lows = call('ZRANGEBYLEX', index, from .. low, '[' .. last, 'LIMIT', 0, 100)
                for _, below in ipairs(lows) do
                    local key = prefix .. p.kind .. ':' .. p.network .. ':' .. below
                    local fields = call('HKEYS', key)
                    if #fields == 0 then return nil, nil, key end
                    for _, field in ipairs(fields) do
                        local inside = address_of(p.kind, below, field)
                        if inside >= address and inside <= last and not touched[p.kind .. inside] then
                            return at, call('HMGET', key, field)[1]
                        end
                    end
                    low, from = below, '('
                end
            until #lows < 100
        end
    end
end

-- Cuts a hash of IPv6 that grew too long: its lower addresses stay, the others move on to new ones.
local function cut(prefix, p)
    local all, order = call('HGETALL', p.key), {}
    for at = 1, #all, 2 do order[#order + 1] = at end
    table.sort(order, function(one, other) return all[one] < all[other] end)
    local from = LEAF_CUT + 1
    if #order > 2 * LEAF_CUT then
        -- It is no compact hash any more, and would not become one again by losing fields.
        call('DEL', p.key)
        from = 1
    end
    while from <= #order do
        local size = #order - from + 1
        if size > LEAF_MAX then size = LEAF_CUT end
        local moved, fields = {}, {}
        for n = from, from + size - 1 do
            local at = order[n]
            moved[#moved + 1], moved[#moved + 2] = all[at], all[at + 1]
            fields[#fields + 1] = all[at]
        end
        if from == 1 then
            call('HSET', p.key, unpack(moved))
        else
            call('HSET', prefix .. '6:' .. p.network .. ':' .. fields[1], unpack(moved))
            call('ZADD', prefix .. 'i6:' .. p.network, 0, fields[1])
            call('HDEL', p.key, unpack(fields))
        end
        from = from + size
    end
end

-- Arguments of a call. Used again: a table that grows is made anew again and again.
local puts, dels = {}, {}

local function write(prefix, kinds, p)
    local added, gone = 0, false
    local expect, record = p.expect, p.record
    for from = p.first, p.last, STRIP do
        local np, nd = 0, 0
        for at = from, min(from + STRIP - 1, p.last) do
            local after = argv[at + record]
            if after ~= '' then
                puts[np + 1], puts[np + 2] = argv[at], after
                np = np + 2
            elseif expect and argv[at + expect] ~= '' then
                nd = nd + 1
                dels[nd] = argv[at]
            end
        end
        if np > 0 then added = added + call('HSET', p.key, unpack(puts, 1, np)) end
        if nd > 0 then
            call('HDEL', p.key, unpack(dels, 1, nd))
            gone = true
        end
    end
    -- Is there something for `networks` to say?
    p.changed = gone and p.kind == 'c' or added > 0 and kinds and not string.find(kinds, p.kind, 1, true)
    if p.kind == 'c' then return end
    if added > 0 then
        if p.absent then call('ZADD', prefix .. 'i' .. p.kind .. ':' .. p.network, 0, p.low) end
        if p.kind == '6' and call('HLEN', p.key) > LEAF_MAX then cut(prefix, p) end
    elseif gone and call('EXISTS', p.key) == 0 then
        call('ZREM', prefix .. 'i' .. p.kind .. ':' .. p.network, p.low)
        p.changed = true
    end
end

-- Removes the oldest batches that nobody is to keep, a few at a time. The last ones stay: they are how a batch that is
-- sent again is recognised.
local function trim(log, seq, bytes, seconds)
    for _ = 1, 2 * TRIM_EVERY do
        local first = call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
        local oldest = tonumber(string.match(first[1], '^%d+'))
        local kept = bytes <= tonumber(ARGV[3]) and first[2][6] + ARGV[2] >= seconds
        if kept or oldest > seq - 2 * TRIM_EVERY then break end
        bytes = bytes - #first[2][4]
        call('XTRIM', log, 'MINID', format('%.0f', oldest + 1) .. '-0')
    end
    return bytes
end

-- A right may have been taken away since the start. Of which keys need not be asked: each is read before it is written.
local may = redis.acl_check_cmd
for n = 1, may and #LATER or 0 do
    if not may(LATER[n], KEYS[2]) then
        return redis.error_reply("NOPERM its user may not run '" .. LATER[n] .. "' any more, and nothing was changed: give him "
            .. 'the right again (ACL SETUSER)')
    end
end

local now = call('TIME')[1]
local plans, at = {}, 4
for i = 1, tonumber(ARGV[1]) do
    local head, log, networks = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
    local prefix = sub(head, 1, -5)
    local plan = {i = i, head = head, log = log, networks = networks, prefix = prefix, parts = {}, counts = {}, kinds = {},
        set = false, digest = false, seq = false, bytes = false, log_bytes = false, blocks = false}
    local epoch, token, seq, parent, digest, time, generation = unpack(argv, at, at + 6)
    local h = call('HMGET', head, 'epoch', 'token', 'seq', 'digest', 'time', 'generation', 'blocks', 'log_bytes',
        'networks')
    if not h[1] then return missing() or {'absent', i} end
    if h[1] == '0' or h[1] ~= epoch or h[2] ~= token then return missing() or {'fenced', i, h[1]} end
    local next = seq - h[3]
    if next <= 0 then
        local known = h[4]
        if next < 0 then
            local entry = call('XRANGE', log, seq .. '-0', seq .. '-0')[1]
            known = entry and entry[2][2]
        end
        if known ~= digest then return missing() or {'fenced', i, h[1]} end
    else
        if next > 1 then return missing() or {'gap', i, h[3]} end
        if parent ~= h[4] then return missing() or {'fenced', i, h[1]} end
        if time - h[5] < 0 or generation - h[6] < 0 then return missing() or {'back', i} end
        if h[3] ~= '0' then await(log, plan) end
        if h[9] ~= '0' then await(networks, plan) end
        plan.set = {'seq', seq, 'digest', digest, 'time', time, 'generation', generation}
        plan.digest, plan.seq, plan.bytes, plan.log_bytes = digest, seq, at + 7, h[8]
        plan.blocks = tonumber(h[7])
        local watch = plan.blocks > 0 or argv[at + 8] == '1'
        local touched = {}
        local group = at + 11
        for _ = 1, tonumber(argv[at + 10]) do
            local count, expects = tonumber(argv[group + 3]), tonumber(argv[group + 4])
            -- `expect` and `record` are how far behind a field its expectation and its record stand. What it becomes is in it
            -- from the start: a table that grows is made anew.
            local g = {kind = argv[group], network = argv[group + 1], low = argv[group + 2], first = group + 5,
                last = group + 4 + count, expect = expects > 0 and count, record = count + expects, plan = plan,
                key = false, fresh = true, absent = false, changed = false}
            group = g.last + expects + count + 1
            if watch and not plan.counts[g.network] then plan.counts[g.network] = {} end
            if watch or g.kind ~= '4' then vouch(plan, g.network) end
            for _, p in ipairs(parts_of(prefix, g)) do
                local where, found, lost
                -- Grants from the first address of a bucket on are mostly the first in it: nothing is there to be compared.
                local begins = p.kind == '4' and not p.expect and argv[p.first] == '0'
                if begins then lost, p.absent = hash_gone(prefix, '4', p.network, p.low, p.key) end
                if not p.absent then where, found = differs(p, watch, plan.counts[p.network]) end
                if p.kind ~= 'c' and where and not found then
                    lost, p.absent = hash_gone(prefix, p.kind, p.network, p.low, p.key)
                elseif p.kind ~= 'c' and p.fresh and not begins then
                    await(p.key, p)
                end
                if lost then return missing() or {'lost', i, p.key} end
                if where or p.absent or not p.fresh then vouch(plan, p.network) end
                if where then return missing() or {'mismatch', i, p.kind, p.network, p.low, argv[where], found} end
                plan.parts[#plan.parts + 1] = p
                for n = p.first, watch and p.kind ~= 'c' and p.last or 0 do
                    local network = touched[p.network] or {}
                    touched[p.network] = network
                    network[p.kind .. address_of(p.kind, p.low, argv[n])] = true
                end
            end
        end
        -- What lies in the way is looked for in hashes that must be there.
        local gone = watch and missing()
        if gone then return gone end
        local stored = {}
        for _, p in ipairs(watch and plan.parts or {}) do
            if p.kind ~= 'c' then
                if not stored[p.network] then stored[p.network] = lengths_of(prefix, p.network) end
                local where, found, key = in_the_way(prefix, p, stored[p.network], touched[p.network],
                    plan.counts[p.network])
                if key then return {'lost', i, key} end
                if where then return {'mismatch', i, p.kind, p.network, p.low, argv[where], found} end
            end
        end
        plans[#plans + 1] = plan
    end
    at = at + 11 + tonumber(argv[at + 9])
end

local gone = missing()
if gone then return gone end

-- Nothing is refused from here on.
for _, plan in ipairs(plans) do
    local prefix, changed = plan.prefix, {}
    call('XADD', plan.log, plan.seq .. '-0', 'digest', plan.digest, 'batch', argv[plan.bytes], 'at', now)
    for _, p in ipairs(plan.parts) do
        write(prefix, plan.kinds[p.network], p)
        if p.changed then changed[p.network] = true end
    end
    for network, lengths in pairs(plan.counts) do
        for name, more in pairs(lengths) do
            local key = prefix .. 'k:' .. network
            local left = more ~= 0 and call('HINCRBY', key, name, more)
            if left == 0 then call('HDEL', key, name) end
            if left == 0 or left and not string.find(plan.kinds[network], 'k', 1, true) then changed[network] = true end
            plan.blocks = plan.blocks + more
        end
    end
    for network in pairs(changed) do
        local kinds = ''
        for _, letter in ipairs(LETTERS) do
            if call('EXISTS', prefix .. BELOW[letter] .. network) == 1 then kinds = kinds .. letter end
        end
        if kinds ~= '' then
            call('HSET', plan.networks, network, kinds)
        else
            call('HDEL', plan.networks, network)
        end
    end
    if next(changed) then
        local n = #plan.set
        plan.set[n + 1], plan.set[n + 2] = 'networks', call('HLEN', plan.networks)
    end
    local bytes = plan.log_bytes + #argv[plan.bytes]
    if plan.seq % TRIM_EVERY == 0 then bytes = trim(plan.log, tonumber(plan.seq), bytes, tonumber(now)) end
    call('HSET', plan.head, 'blocks', format('%.0f', plan.blocks), 'log_bytes', format('%.0f', bytes), unpack(plan.set))
end
return {'applied'}
