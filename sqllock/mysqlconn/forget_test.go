//go:build soak

package mysqlconn

import (
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestForgets: a server forgets the last commits while processes hold names and wait for them.
func TestForgets(t *testing.T) {
	faults.Forgets(t, []faults.Way{
		{Name: "MariaDB, a lagging replica takes over", Start: func(t *testing.T) faults.Forgetful { return replicaTakesOver(t, testserver.StartMariaDB) }},
		{Name: "MySQL, a lagging replica takes over", Start: func(t *testing.T) faults.Forgetful { return replicaTakesOver(t, testserver.StartMySQL) }},
		{Name: "MariaDB, its host crashes", Start: func(t *testing.T) faults.Forgetful { return hostCrashes(t, testserver.StartMariaDB) }},
		{Name: "MySQL, its host crashes", Start: func(t *testing.T) faults.Forgetful { return hostCrashes(t, testserver.StartMySQL) }},
	})
}

// start starts a server.
type start func(testing.TB, ...string) *testserver.MySQL

// replicaTakesOver is a primary that is killed when its asynchronous replica has not had the last commits.
func replicaTakesOver(t *testing.T, start start) faults.Forgetful {
	primary := start(t, "--log-bin=b", "--server-id=1")
	replica := start(t, "--log-bin=b", "--server-id=2", "--read-only")
	admin := openDB(t, replica, "?multiStatements=true")
	host, port, _ := strings.Cut(primary.Addr, ":")
	exec(t, admin, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root'; START SLAVE", host, port))
	proxy := chaos.StartProxy(t, primary.Addr)
	return faults.Forgetful{URL: strings.Replace(primary.URL(), primary.Addr, proxy.Addr, 1), Forgets: true,
		Lag: func() {
			before := openDB(t, primary, "")
			for row, found := "", ""; row == "" || row != found; time.Sleep(10 * time.Millisecond) { // what is there has arrived
				const read = "SELECT group_concat(name, value ORDER BY name) FROM holdfast_meta"
				must(t, before.QueryRow(read).Scan(&row))
				_ = admin.QueryRow(read).Scan(&found)
			}
			exec(t, admin, "STOP SLAVE")
		},
		Fail: func() {
			primary.Kill()
			exec(t, admin, "SET GLOBAL read_only = 0")
			proxy.Redirect(replica.Addr)
		},
	}
}

// hostCrashes is a server that does not sync its log at each commit, and loses the last ones with its host.
func hostCrashes(t *testing.T, start start) faults.Forgetful {
	server := start(t, "--innodb-flush-log-at-trx-commit=2")
	var dir string
	must(t, openDB(t, server, "").QueryRow("SELECT @@datadir").Scan(&dir))
	disk := t.TempDir() // what is there of the files when the host crashes
	return faults.Forgetful{URL: server.URL(), Forgets: true,
		Lag: func() {
			server.Pause()
			must(t, osexec.Command("cp", "-a", dir, disk+"/data").Run())
			server.Resume()
		},
		Fail: func() {
			server.Kill()
			must(t, os.RemoveAll(dir), osexec.Command("cp", "-a", disk+"/data", strings.TrimRight(dir, "/")).Run())
			server.Start()
		},
	}
}
