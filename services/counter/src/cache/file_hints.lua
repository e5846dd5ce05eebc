-- counter.file_hints: adds videos whose view was missed, while few enough wait.
-- KEYS[1] set of hints; ARGV: most hints, life in seconds, videos...
if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('SADD', KEYS[1], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
