module github.com/holdfastlock/holdfast/bench

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ..
	github.com/holdfastlock/holdfast/drivertest => ../drivertest
	github.com/holdfastlock/holdfast/redislock/rueidisconn => ../redislock/rueidisconn
)

// 1.0.79, which redsync asks for, is not on every mirror.
replace github.com/redis/rueidis/rueidiscompat => github.com/redis/rueidis/rueidiscompat v1.0.78

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/redislock/rueidisconn v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/redis/rueidis/rueidiscompat v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)
