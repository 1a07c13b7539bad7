module github.com/holdfastlock/holdfast/celllock

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ..
	github.com/holdfastlock/holdfast/cell => ../cell
	github.com/holdfastlock/holdfast/drivertest => ../drivertest
)

require (
	connectrpc.com/connect v1.21.1
	github.com/anishathalye/porcupine v1.3.1
	github.com/holdfastlock/holdfast v0.0.0-00010101000000-000000000000
	github.com/holdfastlock/holdfast/cell v0.0.0-00010101000000-000000000000
	github.com/holdfastlock/holdfast/drivertest v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.11
)
