
-- Hashes of IPv6: each has what lies between its LOW and the next.

-- The parts of a group, by the hashes in which its addresses lie.
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
        repeat at = at + 1 until at > last or (high and argv[at] >= high)
        p.last = at - 1
        parts[#parts + 1] = p
    end
    return parts
end

-- Cuts a hash that grew too long: its lower addresses stay, the others move on to new ones.
local function cut(p)
    local all, order = call('HGETALL', p.key), {}
    local prefix, network = p.plan.prefix, network_of(p)
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
            call('HSET', prefix .. '6:' .. network .. ':' .. fields[1], unpack(moved))
            call('ZADD', prefix .. 'i6:' .. network, 0, fields[1])
            call('HDEL', p.key, unpack(fields))
        end
        from = from + size
    end
end
