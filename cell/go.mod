module github.com/holdfastlock/holdfast/cell

go 1.26.0

replace github.com/holdfastlock/holdfast => ..

require (
	connectrpc.com/connect v1.21.1
	github.com/holdfastlock/holdfast v0.0.0-00010101000000-000000000000
	google.golang.org/protobuf v1.36.11
)
