module github.com/holdfastlock/holdfast/zklock

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ..
	github.com/holdfastlock/holdfast/drivertest => ../drivertest
)

require (
	github.com/holdfastlock/holdfast v0.0.0
	go.uber.org/goleak v1.3.0
)

require github.com/stretchr/testify v1.12.1 // indirect
