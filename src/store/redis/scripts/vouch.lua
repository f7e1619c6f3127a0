#!lua flags=no-writes
-- Tells of a key that read as nothing whether it is there, and else what is said of it by what vouches for it, both at one
-- instant: a key that somebody makes or removes meanwhile is not taken for one that is lost. It is a script and no MULTI, for
-- Redis queues nothing while its memory is full, and an owner that starts then must be able to load.
--
-- KEYS[1] voucher: what vouches for it
-- KEYS[2] key: the key
-- ARGV[1] kind: `zset` where the voucher is an index, else `hash`
-- ARGV[2] field: of the voucher
-- returns {`there`}
-- returns {`gone`, said}: what the voucher has in that field, or nothing
-- writes nothing
if redis.call('EXISTS', KEYS[2]) == 1 then
    return {'there'}
end
if ARGV[1] == 'zset' then
    return {'gone', redis.call('ZSCORE', KEYS[1], ARGV[2])}
end
return {'gone', redis.call('HGET', KEYS[1], ARGV[2])}
