module github.com/holdfastlock/holdfast/sqllock/mysqlconn

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ../..
	github.com/holdfastlock/holdfast/drivertest => ../../drivertest
)

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/drivertest v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/anishathalye/porcupine v1.3.1 // indirect
)
