module github.com/holdfastlock/holdfast/drivertest

go 1.26.0

replace github.com/holdfastlock/holdfast => ../

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)
