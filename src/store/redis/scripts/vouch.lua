#!lua flags=no-writes
-- Tells whether a key exists that was read as empty, and if not, what its voucher says of it. Both are read at one
-- instant, so that a key that is made or removed meanwhile is not taken for a lost one. This is a script and not a
-- MULTI, because Redis queues no command while its memory is full, and an owner that starts then must be able to load.
--
-- KEYS[1] voucher: the key that vouches for it
-- KEYS[2] key: the key that was read as empty
-- ARGV[1] kind: `zset` if the voucher is an index, else `hash`
-- ARGV[2..] field: what to read in the voucher: a member of an index, or one or two fields of a hash
-- returns {`there`}: the key exists
-- returns {`gone`, said, …}: what the voucher has for each of these, or nil
-- writes nothing
if redis.call('EXISTS', KEYS[2]) == 1 then
    return {'there'}
end
if ARGV[1] == 'zset' then
    return {'gone', redis.call('ZSCORE', KEYS[1], ARGV[2])}
end
return {'gone', redis.call('HGET', KEYS[1], ARGV[2]), ARGV[3] and redis.call('HGET', KEYS[1], ARGV[3])}
