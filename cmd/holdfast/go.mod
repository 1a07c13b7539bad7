module github.com/holdfastlock/holdfast/cmd/holdfast

go 1.26.0

replace (
	github.com/holdfastlock/holdfast => ../..
	github.com/holdfastlock/holdfast/drivertest => ../../drivertest
	github.com/holdfastlock/holdfast/redislock/rueidisconn => ../../redislock/rueidisconn
)

require (
	github.com/creack/pty v1.1.24
	github.com/go-sql-driver/mysql v1.10.1
	github.com/holdfastlock/holdfast v0.0.0
	github.com/holdfastlock/holdfast/redislock/rueidisconn v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/mattn/go-runewidth v0.0.31
	github.com/spf13/cobra v1.10.2
	golang.org/x/sys v0.48.0
	golang.org/x/term v0.46.0
	modernc.org/sqlite v1.60.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/text v0.41.0 // indirect
)

require (
	github.com/clipperhouse/uax29/v2 v2.2.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/holdfastlock/holdfast/sqllock/mysqlconn v0.0.0
	github.com/holdfastlock/holdfast/sqllock/pgconn v0.0.0
	github.com/holdfastlock/holdfast/sqllock/sqliteconn v0.0.0
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sync v0.24.0 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/holdfastlock/holdfast/sqllock/pgconn => ../../sqllock/pgconn

replace github.com/holdfastlock/holdfast/sqllock/mysqlconn => ../../sqllock/mysqlconn

replace github.com/holdfastlock/holdfast/sqllock/sqliteconn => ../../sqllock/sqliteconn
