module github.com/holdfastlock/holdfast/redislock/rueidisconn

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ../..
	github.com/holdfastlock/holdfast/drivertest => ../../drivertest
)

require (
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/drivertest v0.0.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
