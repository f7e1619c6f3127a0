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
-- Addresses are hex digits, as many of each family. Which one comes first is asked by `before` alone: `<` of two strings goes by
-- the locale in which Redis was started, and there are some in which a letter comes before a digit.
--
-- A key that is not there is taken for one that never was only if nothing vouches for it: a head for its log and networks,
-- `networks` for the indexes of each, an index for its hashes.
--
-- Behind it come, as one script: `commit/sparse.lua` (hashes of IPv6), `commit/blocks.lua` (what lies in the way of a put) and
-- `commit/apply.lua` (the checks, and then the writes).
--
-- KEYS[1] guard: never there
-- KEYS[2,5..] head: the head of the shard
-- KEYS[3,6..] log: its batches
-- KEYS[4,7..] networks: those that have anything, and which of `c`, `4` (its i4), `6` (its i6), `k`
-- ARGV[1] batches: how many follow
-- ARGV[2] keep_seconds: for how long batches stay in the log
-- ARGV[3] keep_bytes: how many bytes of batches stay in a shard's log
-- ARGV[4..] batch: epoch token seq parent digest time generation bytes blocks size groups group…
-- ARGV group: name fields expect… record…
--   name is `c:NETWORK`, `4:NETWORK:LOW` or `6:NETWORK`
--   fields are of `4` one text: `=` where expectations follow or `+` where nothing is expected anywhere, and a byte for each
--   field; of the others `=` or `+`, how many, and each
--   expect is a mark as its record has it, or nothing
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
local call, sub, byte, format, find = redis.call, string.sub, string.byte, string.format, string.find
local argv, unpack, min = ARGV, unpack, math.min
-- Arguments of one call, bounded by Lua's stack; how long a hash of IPv6 may grow, and how many addresses stay in it
-- when it is cut; how often the log is trimmed; up to how many addresses of a hash are few.
local STRIP, LEAF_MAX, LEAF_CUT, TRIM_EVERY, FEW = 1000, 96, 64, 64, 8
local ZERO = string.rep('0', 32)
-- Bytes: the kinds `c`, `4` and `6`, and `=`.
local CONFIG, BUCKET, SPARSE, EXPECTS = 99, 52, 54, 61
-- Where a network's id ends in a name.
local NETWORK_END = 38
-- Names of the fields of a bucket.
local FIELDS = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14', '15', '16', '17', '18',
    '19', '20', '21', '22', '23', '24', '25', '26', '27', '28', '29', '30', '31', '32', '33', '34', '35', '36', '37', '38', '39',
    '40', '41', '42', '43', '44', '45', '46', '47', '48', '49', '50', '51', '52', '53', '54', '55', '56', '57', '58', '59', '60',
    '61', '62', '63'}
-- Whatever is called after the first write.
local LATER = {'XADD', 'XRANGE', 'XTRIM', 'HSET', 'HDEL', 'HINCRBY', 'HLEN', 'HGETALL', 'ZADD', 'ZREM', 'EXISTS', 'DEL'}
-- Keys of a network by their letters in `networks`.
local LETTERS, BELOW = {'c', '4', '6', 'k'}, {c = 'c:', ['4'] = 'i4:', ['6'] = 'i6:', k = 'k:'}

-- What one hash becomes is a *part*: `fields` from `first` to `last`; `expect` and `record` are how far behind the number of a
-- field its expectation and its record stand in ARGV. Most commits are many parts, so one has no more than it needs.

local function kind_of(p) return sub(p.name, 1, 1) end
local function network_of(p) return sub(p.name, 3, NETWORK_END) end
local function low_of(p) return p.low or sub(p.name, NETWORK_END + 2) end

-- Keys that are waited for: each must be there, or is a hash that may be new. Looked for together, before anything is
-- written and before anything else is refused. Of each, the plan that needs it, or the part that is this hash.
local awaited, whose, waits = {}, {}, 0

local function await(key, of)
    waits = waits + 1
    awaited[waits], whose[waits] = key, of
end

-- Which of a network's keys there are, by what vouches for them; they are looked for. What only puts records into a hash that is
-- there does without.
local function vouch(plan, network)
    local kinds = plan.kinds[network]
    if kinds then return kinds end
    kinds = call('HGET', plan.networks, network) or ''
    for n = 1, #kinds do await(plan.prefix .. BELOW[sub(kinds, n, n)] .. network, plan) end
    plan.kinds[network] = kinds
    return kinds
end

-- Is this hash gone, although its index has it? Tells also whether it is not there.
local function hash_gone(prefix, kind, network, low, key)
    local absent = call('EXISTS', key) == 0
    return absent and call('ZSCORE', prefix .. 'i' .. kind .. ':' .. network, low), absent
end

-- The same of a part, which remembers it.
local function part_gone(p)
    local lost, absent = hash_gone(p.plan.prefix, kind_of(p), network_of(p), low_of(p), p.key)
    p.absent = absent
    return lost
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
                gone = part_gone(p)
                -- What vouches for its network is awaited then, too.
                if p.absent and not gone then vouch(p.plan, network_of(p)) end
            else
                gone = call('EXISTS', awaited[at]) == 0
            end
            if gone then return {'lost', (p.plan or p).i, awaited[at]} end
        end
        from = to + 1
    end
    waits = 0
end

-- Length of what a record covers: behind version, kind and mark.
local function length_of(record)
    local at = 3
    while byte(record, at) >= 128 do at = at + 1 end
    return byte(record, at + 1)
end

-- Does an address come before another one of its family? By bytes, some at a time; the first half is mostly the same.
local function before(one, other)
    local half = #one / 2
    for from = sub(one, 1, half) == sub(other, 1, half) and half + 1 or 1, #one, 4 do
        local a, b, c, d = byte(one, from, from + 3)
        local e, f, g, h = byte(other, from, from + 3)
        if a ~= e then return a < e end
        if b ~= f then return b < f end
        if c ~= g then return c < g end
        if d ~= h then return d < h end
    end
    return false
end

local function address_of(kind, low, field)
    return kind == '4' and format('%08x', tonumber(low, 16) + field) or field
end
