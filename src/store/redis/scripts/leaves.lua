#!lua flags=no-writes,allow-oom
-- Reads some hashes of IPv6 at one instant. Read in ascending order none is missed: a hash that is cut meanwhile only gives
-- to what is read later.
--
-- KEYS[1] index: the LOWs of a network
-- ARGV[1] after: the last LOW that was read, `(` in front; `-` at the beginning
-- ARGV[2] count: how many hashes
-- ARGV[3] records: name of a hash without its LOW
-- returns {LOW, {field, record, …}, …}: fewer than count at the end
-- writes nothing
local answer = {}
for _, low in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])) do
    answer[#answer + 1] = low
    answer[#answer + 1] = redis.call('HGETALL', ARGV[3] .. low)
end
return answer
