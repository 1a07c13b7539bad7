module github.com/holdfastlock/holdfast/drivertest

go 1.26.0

replace github.com/holdfastlock/holdfast => ../

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/holdfastlock/holdfast v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)
