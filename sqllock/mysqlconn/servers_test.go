package mysqlconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// onEach runs a test on MariaDB and on MySQL.
func onEach(t *testing.T, test func(*testing.T, *testserver.MySQL)) {
	t.Run("MariaDB", func(t *testing.T) { test(t, testserver.StartMariaDB(t)) })
	if testserver.Soak {
		t.Run("MySQL", func(t *testing.T) { test(t, testserver.StartMySQL(t)) })
	}
}
