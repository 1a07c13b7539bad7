module github.com/holdfastlock/holdfast/zklock

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ..
	github.com/holdfastlock/holdfast/drivertest => ../drivertest
)

require (
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/drivertest v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require github.com/anishathalye/porcupine v1.3.1 // indirect
