//go:build soak && linux

package docstest

import (
	"flag"

	_ "github.com/holdfastlock/holdfast/celllock"
	_ "github.com/holdfastlock/holdfast/etcdlock"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/memlock"
	_ "github.com/holdfastlock/holdfast/redislock"
	_ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn"
	_ "github.com/holdfastlock/holdfast/zklock"
)

var update = flag.Bool("update", false, "write the measured tables into docs/stores")
