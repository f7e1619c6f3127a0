
-- The checks, and then the writes.

-- Compares the records that are there with what is expected. Returns the first field that differs, and its record. If none
-- differs, returns third whether none of them has a record. In a network with blocks it counts, for each block that is there,
-- one less: `in_the_way` counts those that are put.
local function differs(p, lengths)
    local expect, fresh = p.expect, true
    for from = p.first, p.last, STRIP do
        local to = min(from + STRIP - 1, p.last)
        local found = call('HMGET', p.key, unpack(p.fields, from, to))
        for at = from, to do
            local there, mark = found[at - from + 1], expect and argv[at + expect] or ''
            if mark == '' then
                if there then return at, there end
            elseif not there or sub(there, 3, 2 + #mark) ~= mark then
                return at, there
            else
                fresh = false
                if lengths then
                    local kind, length = kind_of(p), byte(there, 3 + #mark)
                    if kind ~= 'c' and length ~= (kind == '4' and 32 or 128) then count(lengths, kind, length, -1) end
                end
            end
        end
    end
    return nil, nil, fresh
end

-- Arguments of a call. The tables are reused, because a growing table is reallocated again and again.
local puts, dels = {}, {}

local function write(p)
    local plan, fields, expect, record = p.plan, p.fields, p.expect, p.record
    local added, gone = 0, false
    for from = p.first, p.last, STRIP do
        local np, nd = 0, 0
        for at = from, min(from + STRIP - 1, p.last) do
            local after = argv[at + record]
            if after ~= '' then
                puts[np + 1], puts[np + 2] = fields[at], after
                np = np + 2
            elseif expect and argv[at + expect] ~= '' then
                nd = nd + 1
                dels[nd] = fields[at]
            end
        end
        if np > 0 then added = added + call('HSET', p.key, unpack(puts, 1, np)) end
        if nd > 0 then
            call('HDEL', p.key, unpack(dels, 1, nd))
            gone = true
        end
    end
    -- If a bucket existed and only gets records, no other key changes.
    if not gone and not p.absent and byte(p.name) == BUCKET then return end
    local kind, kinds = kind_of(p), plan.kinds[network_of(p)]
    -- Does `networks` have to change?
    local changed = gone and kind == 'c' or added > 0 and kinds and not find(kinds, kind, 1, true)
    if kind ~= 'c' and added > 0 then
        if p.absent then call('ZADD', plan.prefix .. 'i' .. kind .. ':' .. network_of(p), 0, low_of(p)) end
        if kind == '6' and call('HLEN', p.key) > LEAF_MAX then cut(p) end
    elseif kind ~= 'c' and gone and call('EXISTS', p.key) == 0 then
        call('ZREM', plan.prefix .. 'i' .. kind .. ':' .. network_of(p), low_of(p))
        changed = true
    end
    if changed then plan.changed[network_of(p)] = true end
end

-- Removes the oldest batches that need not be kept, a limited number at a time. The last ones always stay, because they show
-- whether a batch that is sent again was applied. Returns how many bytes of batches are left.
local function trim(log, seq, bytes, seconds)
    local from, upto = '-', nil
    for _ = 1, 2 * TRIM_EVERY do
        local first = call('XRANGE', log, from, '+', 'COUNT', 1)[1]
        local oldest = tonumber(string.match(first[1], '^%d+'))
        local kept = bytes <= tonumber(argv[3]) and first[2][6] + argv[2] >= seconds
        if kept or oldest > seq - 2 * TRIM_EVERY then break end
        bytes = bytes - #first[2][4]
        upto = format('%.0f', oldest + 1) .. '-0'
        from = upto
    end
    if upto then call('XTRIM', log, 'MINID', upto) end
    return bytes
end

-- A right may have been revoked since the start. The rights to keys need no check, because each key is read before it is
-- written.
local may = redis.acl_check_cmd
for n = 1, may and #LATER or 0 do
    if not may(LATER[n], KEYS[2]) then
        return redis.error_reply("NOPERM its user may not run '" .. LATER[n] .. "' any more, and nothing was changed: give him "
            .. 'the right again (ACL SETUSER)')
    end
end

local now = call('TIME')[1]
local plans, at = {}, 4
for i = 1, tonumber(argv[1]) do
    local head, log, networks = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
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
        -- `at` is where the arguments of the batch begin in ARGV.
        local plan = {i = i, at = at, head = head, log = log, networks = networks, prefix = sub(head, 1, -5), parts = {},
            kinds = {}, changed = {}, blocks = tonumber(h[7]), log_bytes = h[8], counts = false}
        if h[3] ~= '0' then await(log, plan) end
        if h[9] ~= '0' then await(networks, plan) end
        local puts_blocks = argv[at + 8] == '1'
        local watches = puts_blocks or plan.blocks > 0
        -- For each network with blocks: the changes of its counts, and the addresses that this batch changes.
        local counts, touched = {}, {}
        plan.counts = watches and counts
        local parts, group = plan.parts, at + 11
        for _ = 1, tonumber(argv[at + 10]) do
            local name = argv[group]
            local kind, fields, first, last, expect, record = byte(name), argv, group + 3, 0, false, 0
            if kind == BUCKET then
                local places = argv[group + 1]
                first, last, fields = 1, #places - 1, {byte(places, 2, -1)}
                for n = 1, last do fields[n] = FIELDS[fields[n]] end
                expect = byte(places) == EXPECTS and group + 1
                record = group + 1 + (expect and last or 0)
            else
                local size = tonumber(argv[group + 2])
                last = group + 2 + size
                expect = argv[group + 1] == '=' and size
                record = expect and 2 * size or size
            end
            group = last + record + 1
            local network = (watches or kind ~= BUCKET) and sub(name, 3, NETWORK_END)
            local kinds = network and vouch(plan, network)
            if watches and not counts[network] and (puts_blocks or find(kinds, 'k', 1, true)
                or call('EXISTS', plan.prefix .. 'k:' .. network) == 1) then
                counts[network], touched[network] = {}, {}
            end
            local lengths = watches and counts[network]
            local of_group = kind == SPARSE and parts_of(plan, name, first, last, expect, record)
            for n = 1, of_group and #of_group or 1 do
                local p = of_group and of_group[n] or {name = name, plan = plan, key = plan.prefix .. name, fields = fields,
                    first = first, last = last, expect = expect, record = record}
                local where, found, fresh, lost = nil, nil, true, nil
                -- Grants that begin with the first address of a bucket mostly find no bucket: there is nothing to compare.
                local begins = kind == BUCKET and not expect and fields[1] == '0'
                if begins then lost = part_gone(p) end
                if not p.absent then where, found, fresh = differs(p, lengths) end
                if kind ~= CONFIG and where and not found then
                    lost = part_gone(p)
                elseif kind ~= CONFIG and fresh and not begins then
                    await(p.key, p)
                end
                if lost then return missing() or {'lost', i, p.key} end
                if where or p.absent or not fresh then vouch(plan, network_of(p)) end
                if where then
                    return missing() or {'mismatch', i, kind_of(p), network_of(p), kind == CONFIG and '' or low_of(p), p.fields[where],
                        found}
                end
                parts[#parts + 1] = p
                for field = p.first, lengths and kind ~= CONFIG and p.last or 0 do
                    touched[network][kind_of(p) .. address_of(kind_of(p), low_of(p), p.fields[field])] = true
                end
            end
        end
        -- The search for records in the way reads hashes that must exist.
        local gone = watches and missing()
        if gone then return gone end
        local stored = {}
        for n = 1, watches and #parts or 0 do
            local p = parts[n]
            local network = network_of(p)
            if counts[network] and kind_of(p) ~= 'c' then
                stored[network] = stored[network] or lengths_of(plan.prefix, network)
                local where, found, key = in_the_way(p, stored[network], touched[network], counts[network])
                if key then return {'lost', i, key} end
                if where then
                    return {'mismatch', i, kind_of(p), network, low_of(p), p.fields[where], found}
                end
            end
        end
        plans[#plans + 1] = plan
    end
    at = at + 11 + tonumber(argv[at + 9])
end

local gone = missing()
if gone then return gone end

-- Nothing is refused from here on.
for n = 1, #plans do
    local plan = plans[n]
    local of, changed = plan.at, plan.changed
    local seq, digest, batch = argv[of + 2], argv[of + 4], argv[of + 7]
    call('XADD', plan.log, seq .. '-0', 'digest', digest, 'batch', batch, 'at', now)
    for p = 1, #plan.parts do write(plan.parts[p]) end
    local blocks = plan.blocks
    for network, lengths in pairs(plan.counts or {}) do
        for name, more in pairs(lengths) do
            local key = plan.prefix .. 'k:' .. network
            local left = more ~= 0 and call('HINCRBY', key, name, more)
            if left == 0 then call('HDEL', key, name) end
            if left == 0 or left and not find(plan.kinds[network], 'k', 1, true) then changed[network] = true end
            blocks = blocks + more
        end
    end
    for network in pairs(changed) do
        local kinds = ''
        for _, letter in ipairs(LETTERS) do
            if call('EXISTS', plan.prefix .. BELOW[letter] .. network) == 1 then kinds = kinds .. letter end
        end
        if kinds ~= '' then
            call('HSET', plan.networks, network, kinds)
        else
            call('HDEL', plan.networks, network)
        end
    end
    local bytes = plan.log_bytes + #batch
    if seq % TRIM_EVERY == 0 then bytes = trim(plan.log, tonumber(seq), bytes, tonumber(now)) end
    call('HSET', plan.head, 'seq', seq, 'digest', digest, 'time', argv[of + 5], 'generation', argv[of + 6], 'log_bytes',
        format('%.0f', bytes))
    -- Both change rarely.
    if blocks ~= plan.blocks then call('HSET', plan.head, 'blocks', format('%.0f', blocks)) end
    if next(changed) then call('HSET', plan.head, 'networks', call('HLEN', plan.networks)) end
end
return {'applied'}
