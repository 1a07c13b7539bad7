module github.com/holdfastlock/holdfast/sqllock/sqliteconn

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ../..
	github.com/holdfastlock/holdfast/drivertest => ../../drivertest
)

require (
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/drivertest v0.0.0-00010101000000-000000000000
	modernc.org/sqlite v1.60.1
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)
