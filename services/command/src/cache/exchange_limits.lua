-- command.exchange_limits: adds what this process admitted to what all did, and tells the sums. One hash per window of time.
-- KEYS[1] hash; ARGV[1] its life in seconds; then pairs of field and number.
local sums = {}
for place = 2, #ARGV, 2 do
  sums[#sums + 1] = redis.call('HINCRBY', KEYS[1], ARGV[place], ARGV[place + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return sums
