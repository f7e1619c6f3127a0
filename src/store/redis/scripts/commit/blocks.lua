
-- Blocks: what is in the way of a new record. Only needed for networks with blocks, or if the batch puts one.

-- The first address of the prefix of this length that contains an address; both in hex.
local function base_of(address, length)
    local whole = math.floor(length / 4)
    if whole >= #address then return address end
    local digit = tonumber(sub(address, whole + 1, whole + 1), 16)
    local unit = 2 ^ (4 - length % 4)
    return sub(address, 1, whole) .. format('%x', digit - digit % unit) .. string.rep('0', #address - whole - 1)
end

-- The last address of that prefix.
local function last_of(address, length)
    local whole = math.floor(length / 4)
    if whole >= #address then return address end
    local digit = tonumber(sub(address, whole + 1, whole + 1), 16)
    return sub(address, 1, whole) .. format('%x', digit + 2 ^ (4 - length % 4) - 1)
        .. string.rep('f', #address - whole - 1)
end

-- The hash that has an address, the field of the address there, and the first address of the hash.
local function place_of(prefix, kind, network, address)
    if kind == '4' then
        local number = tonumber(address, 16)
        local low = format('%08x', number - number % 64)
        return prefix .. '4:' .. network .. ':' .. low, tostring(number % 64), low
    end
    local low = call('ZREVRANGEBYLEX', prefix .. 'i6:' .. network, '[' .. address, '-', 'LIMIT', 0, 1)[1] or ZERO
    return prefix .. '6:' .. network .. ':' .. low, address, low
end

-- The lengths of the blocks that a network has, by kind. `at` caches the records of the bases that were asked for; false is
-- none.
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

-- Adds `more`, which may be negative, to the change in the number of blocks of a length.
local function count(lengths, kind, length, more)
    local name = kind .. '/' .. length
    lengths[name] = (lengths[name] or 0) + more
end

-- Returns the blocks of these lengths that may contain what a part puts; or nil, and a key that is gone. To find blocks that
-- begin in the hash of the part, their possible bases are read for a few addresses, or the whole hash for more. A block that
-- begins before the hash must contain the first address of the hash: there is at most one of each length, which is the same
-- for many parts.
local function blocks_around(p, kind, network, low, around)
    local blocks, all, width, prefix = {}, {}, kind == '4' and 32 or 128, p.plan.prefix
    if p.last - p.first >= FEW and #around > 0 then
        all = p.absent and all or call('HGETALL', p.key)
    elseif not p.absent then
        local fields, seen = {}, {}
        for at = p.first, p.last do
            local address = address_of(kind, low, p.fields[at])
            for n = 1, #around do
                local base = base_of(address, around[n].length)
                if not seen[base] and not before(base, low) then
                    seen[base] = true
                    fields[#fields + 1] = kind == '4' and tostring(tonumber(base, 16) % 64) or base
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
        if length < width then add(blocks, address_of(kind, low, all[n]), all[n + 1], length) end
    end
    for n = 1, #around do
        local one = around[n]
        local base = base_of(low, one.length)
        local begins_before = before(base, low)
        if begins_before and one.at[base] == nil then
            local key, field, begins = place_of(prefix, kind, network, base)
            local there = call('HMGET', key, field)[1]
            if not there and hash_gone(prefix, kind, network, begins, key) then return nil, key end
            one.at[base] = there and length_of(there) == one.length and there
        end
        if begins_before and one.at[base] then add(blocks, base, one.at[base], one.length) end
    end
    return blocks
end

-- Returns the first put of a part that has a record in its way, and that record: a block around it or, if it is a block
-- itself, any record inside. Third, a key that is gone. Records that this batch changes are left out: its puts were compared
-- with one another before it was sent. Also counts the blocks that are put.
local function in_the_way(p, stored, touched, lengths)
    local kind, network, low, prefix = kind_of(p), network_of(p), low_of(p), p.plan.prefix
    local width = kind == '4' and 32 or 128
    local blocks, gone = blocks_around(p, kind, network, low, stored[kind])
    if gone then return nil, nil, gone end
    for at = p.first, p.last do
        local address, record = address_of(kind, low, p.fields[at]), argv[at + p.record]
        local length = record == '' and width or length_of(record)
        for n = 1, record == '' and 0 or #blocks do
            local one = blocks[n]
            local is_around = one.length < length and not before(address, one.from) and not before(one.upto, address)
            if is_around and not touched[kind .. one.from] then return at, one.record end
        end
        if length < width then
            count(lengths, kind, length, 1)
            local last, index = last_of(address, length), prefix .. 'i' .. kind .. ':' .. network
            local next = call('ZREVRANGEBYLEX', index, '[' .. address, '-', 'LIMIT', 0, 1)[1] or address
            local from = '['
            repeat
                local lows = call('ZRANGEBYLEX', index, from .. next, '[' .. last, 'LIMIT', 0, 100)
                for _, below in ipairs(lows) do
                    local key = prefix .. kind .. ':' .. network .. ':' .. below
                    local fields = call('HKEYS', key)
                    if #fields == 0 then return nil, nil, key end
                    for _, field in ipairs(fields) do
                        local inside = address_of(kind, below, field)
                        if not before(inside, address) and not before(last, inside) and not touched[kind .. inside] then
                            return at, call('HMGET', key, field)[1]
                        end
                    end
                    next, from = below, '('
                end
            until #lows < 100
        end
    end
end
