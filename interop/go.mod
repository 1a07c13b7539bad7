module github.com/holdfastlock/holdfast/interop

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ..
	github.com/holdfastlock/holdfast/drivertest => ../drivertest
	github.com/holdfastlock/holdfast/redislock/rueidisconn => ../redislock/rueidisconn
)

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/redislock/rueidisconn v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/holdfastlock/holdfast/zklock v0.0.0
	github.com/redis/rueidis v1.0.79 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/holdfastlock/holdfast/zklock => ../zklock
