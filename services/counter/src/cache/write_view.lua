-- counter.write_view: writes a view unless a later pass has written it.
-- KEYS[1] view; ARGV: raw, risk, policy, display, generated_at (microseconds since 1970), pass, approximate (0 or 1), life in seconds
local kept = redis.call('HGET', KEYS[1], 'pass')
if kept and tonumber(kept) > tonumber(ARGV[6]) then
  return 0
end
redis.call('HSET', KEYS[1], 'raw', ARGV[1], 'risk', ARGV[2], 'policy', ARGV[3], 'display', ARGV[4],
  'generated_at', ARGV[5], 'pass', ARGV[6], 'approximate', ARGV[7])
redis.call('EXPIRE', KEYS[1], ARGV[8])
return 1
