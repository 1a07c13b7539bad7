module github.com/holdfastlock/holdfast/interop

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ..
	github.com/holdfastlock/holdfast/cell => ../cell
	github.com/holdfastlock/holdfast/cell/server => ../cell/server
	github.com/holdfastlock/holdfast/celllock => ../celllock
	github.com/holdfastlock/holdfast/drivertest => ../drivertest
	github.com/holdfastlock/holdfast/etcdlock => ../etcdlock
	github.com/holdfastlock/holdfast/zklock => ../zklock
)

require (
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/celllock v0.0.0-00010101000000-000000000000
	github.com/holdfastlock/holdfast/zklock v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/goleak v1.3.0
)

require (
	connectrpc.com/connect v1.21.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/holdfastlock/holdfast/cell v0.0.0-00010101000000-000000000000 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
