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
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestForgets: an asynchronous replica that lacks the last commits takes over from a primary that was killed; and the
// host of a server crashes that does not sync its log at each commit.
func TestForgets(t *testing.T) {
	for what, start := range map[string]func(testing.TB, ...string) *testserver.MySQL{"MariaDB": testserver.StartMariaDB, "MySQL": testserver.StartMySQL} {
		sqltest.Forgets(t, what+", a replica takes over", func(t *testing.T) sqltest.Forgetful {
			primary, replica := start(t, "--log-bin=b", "--server-id=1"), start(t, "--log-bin=b", "--server-id=2", "--read-only")
			admin := openDB(t, replica, "?multiStatements=true")
			host, port, _ := strings.Cut(primary.Addr, ":")
			exec(t, admin, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root'; START SLAVE", host, port))
			proxy := chaos.StartProxy(t, primary.Addr)
			url := strings.Replace(primary.URL(), primary.Addr, proxy.Addr, 1)
			return sqltest.Forgetful{
				URL: url,
				Lag: func() {
					before := openDB(t, primary, "")
					for row, found := "", ""; row == "" || row != found; time.Sleep(10 * time.Millisecond) { // what is there has arrived
						const read = "SELECT group_concat(name, value ORDER BY name) FROM holdfast_meta"
						must(t, before.QueryRow(read).Scan(&row))
						_ = admin.QueryRow(read).Scan(&found)
					}
					exec(t, admin, "STOP SLAVE")
				},
				Forget: func() {
					primary.Kill()
					exec(t, admin, "SET GLOBAL read_only = 0")
					proxy.Redirect(replica.Addr)
				},
			}
		})
	}
	sqltest.Forgets(t, "MariaDB, its host crashes", func(t *testing.T) sqltest.Forgetful {
		server := testserver.StartMariaDB(t, "--innodb-flush-log-at-trx-commit=2")
		var dir string
		must(t, openDB(t, server, "").QueryRow("SELECT @@datadir").Scan(&dir))
		disk := t.TempDir() // what is there of the files when the host crashes
		return sqltest.Forgetful{
			URL: server.URL(),
			Lag: func() {
				server.Pause()
				must(t, osexec.Command("cp", "-a", dir, disk+"/data").Run())
				server.Resume()
			},
			Forget: func() {
				server.Kill()
				must(t, os.RemoveAll(dir), osexec.Command("cp", "-a", disk+"/data", strings.TrimRight(dir, "/")).Run())
				server.Start()
			},
		}
	})
}
