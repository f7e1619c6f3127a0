#!lua
-- Applies one batch for each of several shards: all of them or none. Everything that can be refused is checked before
-- the first write, because an error does not roll back.
--
-- The arguments of a batch are its name, the batch itself, and the groups of keys that it changes. A group has records
-- of one hash (`c`: configuration, `4`: a bucket of IPv4), or IPv6 addresses in ascending order (`6`), whose hashes the
-- script finds. The names of all other keys are derived from that of the head, `…:head`: `…:c:NETWORK` is configuration,
-- `…:4:NETWORK:LOW` and `…:6:NETWORK:LOW` are records, `…:i4:NETWORK` and `…:i6:NETWORK` are indexes of the LOWs that
-- exist, and `…:k:NETWORK` counts the blocks of each length.
--
-- A Redis cluster does not know derived keys. While it moves the slot key by key, the script would find some of them
-- gone, or break off between two writes. The guard prevents this: it is named in the call but never exists, so the
-- cluster refuses the call before the script begins as long as the slot is being moved.
--
-- Addresses are hex digits, the same number for all of a family. In Lua only `before` compares them: `<` compares
-- strings by the locale in which Redis was started, and in some locales letters come before digits.
--
-- A missing key is taken for one that never existed only if nothing vouches for it. A head vouches for its log and
-- `networks`; `networks` vouches for the configuration, the indexes and the counts of blocks of each network; an index
-- vouches for its hashes.
--
-- Three files follow this one in the same script: `commit/sparse.lua` (hashes of IPv6), `commit/blocks.lua` (what is in
-- the way of a put) and `commit/apply.lua` (the checks, and then the writes).
--
-- KEYS[1] guard: never exists
-- KEYS[2,5..] head: the head of the shard
-- KEYS[3,6..] log: its batches
-- KEYS[4,7..] networks: its networks, and which of `c`, `4` (its i4), `6` (its i6) and `k` each has
-- ARGV[1] batches: number of batches that follow
-- ARGV[2] keep_seconds: how long a batch stays in the log
-- ARGV[3] keep_bytes: how many bytes of batches stay in the log of a shard
-- ARGV[4..] batch: epoch token seq parent digest time generation bytes blocks size groups group…
--   parent and digest are the digests of the line before and after the batch
--   bytes is the encoded batch; blocks is `1` if it puts a block
--   size is the number of arguments of all groups; groups is the number of groups
-- ARGV group: name fields expect… record…
--   name is `c:NETWORK`, `4:NETWORK:LOW` or `6:NETWORK`
--   fields of `4` are one argument: `=` if expectations follow, or `+` if no field may have a record; then a byte for each
--   field
--   fields of `c` and `6` are `=` or `+`, the number of fields, and each field
--   expect is the mark of the record that must be there, or empty if none may be there
--   record is the record afterwards, or empty if there is none
-- returns {`applied`}: every batch is applied, by this call or an earlier one
-- returns {`absent`, n}: the n-th shard has no head
-- returns {`fenced`, n, epoch}: the n-th shard has another owner, or another line
-- returns {`gap`, n, seq}: the batches after seq are missing
-- returns {`back`, n}: time or generation is lower than that of the head
-- returns {`lost`, n, key}: this key is gone although another one vouches for it
-- returns {`mismatch`, n, kind, network, low, field, found}: a record is not as expected, or another one is in the way of a
--   put; found is the record that is there, or nil
-- returns error NOPERM: the user lacks the right to a command that is needed from the first write on; nothing was changed
-- writes head log networks
--   and the derived keys
local call, sub, byte, format, find = redis.call, string.sub, string.byte, string.format, string.find
local argv, unpack, min = ARGV, unpack, math.min
-- STRIP: how many arguments a call has at most, because of Lua's stack. LEAF_MAX: how many addresses an IPv6 hash has at
-- most. LEAF_CUT: how many stay in it when it is split. TRIM_EVERY: after how many batches the log is trimmed. FEW: up to how
-- many addresses of a hash count as few.
local STRIP, LEAF_MAX, LEAF_CUT, TRIM_EVERY, FEW = 1000, 96, 64, 64, 8
local ZERO = string.rep('0', 32)
-- The bytes of the kinds `c`, `4` and `6`, and of `=`.
local CONFIG, BUCKET, SPARSE, EXPECTS = 99, 52, 54, 61
-- The position in a name at which the id of a network ends.
local NETWORK_END = 38
-- Names of the fields of a bucket.
local FIELDS = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14', '15', '16', '17', '18',
    '19', '20', '21', '22', '23', '24', '25', '26', '27', '28', '29', '30', '31', '32', '33', '34', '35', '36', '37', '38', '39',
    '40', '41', '42', '43', '44', '45', '46', '47', '48', '49', '50', '51', '52', '53', '54', '55', '56', '57', '58', '59', '60',
    '61', '62', '63'}
-- Every command that is called from the first write on.
local LATER = {'XADD', 'XRANGE', 'XTRIM', 'HSET', 'HDEL', 'HINCRBY', 'HLEN', 'HGETALL', 'ZADD', 'ZREM', 'EXISTS', 'DEL'}
-- The keys of a network, by their letters in `networks`.
local LETTERS, BELOW = {'c', '4', '6', 'k'}, {c = 'c:', ['4'] = 'i4:', ['6'] = 'i6:', k = 'k:'}

-- The change of one hash is a *part*: `fields` from `first` to `last`; `expect` and `record` are the distances in ARGV from
-- the number of a field to its expectation and to its record. Most commits consist of many parts, so a part has no more than
-- it needs.

local function kind_of(p) return sub(p.name, 1, 1) end
local function network_of(p) return sub(p.name, 3, NETWORK_END) end
local function low_of(p) return p.low or sub(p.name, NETWORK_END + 2) end

-- The keys to check. Each must exist, or is a hash that may be new. They are checked together, before anything is written and
-- before anything else is refused. `whose` has for each key the plan that needs it, or the part whose hash it is.
local awaited, whose, waits = {}, {}, 0

local function await(key, of)
    waits = waits + 1
    awaited[waits], whose[waits] = key, of
end

-- Returns which keys a network has according to `networks`, and adds them to the keys to check. A change that only puts
-- records into an existing hash does not need this.
local function vouch(plan, network)
    local kinds = plan.kinds[network]
    if kinds then return kinds end
    kinds = call('HGET', plan.networks, network) or ''
    for n = 1, #kinds do await(plan.prefix .. BELOW[sub(kinds, n, n)] .. network, plan) end
    plan.kinds[network] = kinds
    return kinds
end

-- Is this hash gone although its index has it? Returns that, and whether it does not exist.
local function hash_gone(prefix, kind, network, low, key)
    local absent = call('EXISTS', key) == 0
    return absent and call('ZSCORE', prefix .. 'i' .. kind .. ':' .. network, low), absent
end

-- The same for a part, which remembers the result.
local function part_gone(p)
    local lost, absent = hash_gone(p.plan.prefix, kind_of(p), network_of(p), low_of(p), p.key)
    p.absent = absent
    return lost
end

-- Checks these keys. Returns the answer of the script for the first one that is gone, or nil.
local function missing()
    local from = 1
    while from <= waits do
        local to = min(from + STRIP - 1, waits)
        local short = call('EXISTS', unpack(awaited, from, to)) < to - from + 1
        for at = from, short and to or 0 do
            local p, gone = whose[at], nil
            if p.plan then
                gone = part_gone(p)
                -- The hash is new, so the keys of its network must be checked, too.
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

-- Length of the prefix that a record covers: the byte after version, kind and mark (a varint).
local function length_of(record)
    local at = 3
    while byte(record, at) >= 128 do at = at + 1 end
    return byte(record, at + 1)
end

-- Does an address come before another one of its family? Compares four bytes at a time. The first halves are mostly equal.
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
