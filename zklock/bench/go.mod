module github.com/holdfastlock/holdfast/zklock/bench

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ../..
	github.com/holdfastlock/holdfast/drivertest => ../../drivertest
	github.com/holdfastlock/holdfast/zklock => ..
)

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/zklock v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/holdfastlock/holdfast/drivertest v0.0.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
