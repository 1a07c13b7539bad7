module github.com/holdfastlock/holdfast/redislock/faulttest

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ../..
	github.com/holdfastlock/holdfast/drivertest => ../../drivertest
	github.com/holdfastlock/holdfast/redislock/goredisconn => ../goredisconn
	github.com/holdfastlock/holdfast/redislock/rueidisconn => ../rueidisconn
)

require (
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/drivertest v0.0.0
	github.com/holdfastlock/holdfast/redislock/goredisconn v0.0.0
	github.com/holdfastlock/holdfast/redislock/rueidisconn v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
