
-- Hashes of IPv6: each has the addresses from its LOW up to the next LOW.

-- So many hex digits (40 bits) and a place below PLACES (13 bits) fit into a number that Lua represents exactly (53 bits).
local TELLING, PLACES = 10, 2 ^ 13

-- The parts of a group, by the hashes that have its addresses.
local function parts_of(plan, name, first, last, expect, record)
    local network = sub(name, 3)
    local parts, index, base = {}, plan.prefix .. 'i6:' .. network, plan.prefix .. '6:' .. network .. ':'
    local at = first
    while at <= last do
        local address = argv[at]
        local low = call('ZREVRANGEBYLEX', index, '[' .. address, '-', 'LIMIT', 0, 1)[1] or ZERO
        local high = call('ZRANGEBYLEX', index, '(' .. address, '+', 'LIMIT', 0, 1)[1]
        local p = {name = name, plan = plan, key = base .. low, low = low, fields = argv, first = at, last = at, expect = expect,
            record = record}
        repeat at = at + 1 until at > last or (high and not before(argv[at], high))
        p.last = at - 1
        parts[#parts + 1] = p
    end
    return parts
end

-- Returns the places of the addresses in a list of records, in the order of the addresses. Sorts numbers, which is fast: each
-- consists of the first digits after the common beginning of all addresses, and of the place. If these digits do not tell all
-- addresses apart, the addresses themselves are compared.
local function in_order(all)
    local common, numbers, order, last = #all[1], {}, {}, nil
    local begins = all[1]
    for at = 3, #all, 2 do
        while sub(all[at], 1, common) ~= begins do
            common = common - 1
            begins = sub(begins, 1, common)
        end
    end
    for at = 1, #all, 2 do
        numbers[#numbers + 1] = tonumber(sub(all[at], common + 1, common + TELLING), 16) * PLACES + at
    end
    table.sort(numbers)
    local is_told = #all < PLACES
    for n = 1, #numbers do
        local at = numbers[n] % PLACES
        local digits = (numbers[n] - at) / PLACES
        order[n], is_told, last = at, is_told and digits ~= last, digits
    end
    if not is_told then
        for n = 1, #order do order[n] = 2 * n - 1 end
        table.sort(order, function(one, other) return before(all[one], all[other]) end)
    end
    return order
end

-- Splits a hash that grew too long: its lowest addresses stay, the others move to new hashes.
local function cut(p)
    local all = call('HGETALL', p.key)
    local prefix, network = p.plan.prefix, network_of(p)
    local order = in_order(all)
    local from = LEAF_CUT + 1
    if #order > 2 * LEAF_CUT then
        -- Redis no longer encodes it compactly, and would not do so again if it only lost fields.
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
            call('HSET', prefix .. '6:' .. network .. ':' .. fields[1], unpack(moved))
            call('ZADD', prefix .. 'i6:' .. network, 0, fields[1])
            call('HDEL', p.key, unpack(fields))
        end
        from = from + size
    end
end
