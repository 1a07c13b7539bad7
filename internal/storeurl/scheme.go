package storeurl

import (
	"fmt"
	"strings"
)

// packages has the package of each URL scheme, for those who have not imported it.
var packages = map[string]string{
	"cell":            "celllock",
	"cells":           "celllock",
	"etcd":            "etcdlock",
	"etcds":           "etcdlock",
	"file":            "filelock",
	"mariadb":         "sqllock/mysqlconn",
	"mem":             "memlock",
	"mysql":           "sqllock/mysqlconn",
	"postgres":        "sqllock/pgconn",
	"postgresql":      "sqllock/pgconn",
	"redis":           "redislock",
	"redis+unix":      "redislock",
	"rediss":          "redislock",
	"redis+cluster":   "redislock",
	"rediss+cluster":  "redislock",
	"redis+sentinel":  "redislock",
	"rediss+sentinel": "redislock",
	"redlock":         "redislock",
	"sqlite":          "sqllock/sqliteconn",
	"zk":              "zklock",
	"zks":             "zklock",
}

// Unknown is the error for a scheme that is not registered: it names the package that registers it, or else
// those that are registered.
func Unknown(scheme string, registered []string) error {
	if p, ok := packages[scheme]; ok {
		return fmt.Errorf("the program has no driver for %s://: import _ %q", scheme, "github.com/holdfastlock/holdfast/"+p)
	}
	have := "none: import a driver's package for its scheme"
	if len(registered) > 0 {
		have = strings.Join(registered, ", ")
	}
	return fmt.Errorf("no driver for URL scheme %q; registered are: %s", scheme, have)
}
