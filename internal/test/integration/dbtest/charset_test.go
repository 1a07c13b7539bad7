//go:build soak

package dbtest

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/txlock"
)

// TestNamesInGBK: a name is no SQL on a connection in GBK, where a quote that the client library has
// escaped may end the text all the same.
func TestNamesInGBK(t *testing.T) {
	for what, server := range map[string]*testserver.MySQL{"MariaDB": testserver.StartMariaDB(t), "MySQL": testserver.StartMySQL(t)} {
		t.Run(what, func(t *testing.T) {
			db := open(t, "mysql", "root@tcp("+server.Addr+")/test?interpolateParams=true&multiStatements=true&charset=gbk")
			names := []string{"日'; CREATE TABLE owned (x INT); -- ", "日"}
			ctx := t.Context()
			for _, schema := range []string{txlock.Schema(txlock.MySQL), fence.Schema(fence.MySQL)} {
				_, err := db.ExecContext(ctx, schema)
				must(t, err)
			}
			must(t, txlock.Create(ctx, txlock.MySQL, db, names...))
			for _, f := range []func(context.Context, txlock.Dialect, txlock.Tx, ...string) error{
				txlock.Lock, txlock.LockShared, txlock.TryLock,
				func(ctx context.Context, d txlock.Dialect, tx txlock.Tx, names ...string) error {
					return errors.Join(txlock.Lock(ctx, d, tx, names...), txlock.Remove(ctx, d, tx, names...))
				},
				func(ctx context.Context, d txlock.Dialect, tx txlock.Tx, names ...string) (err error) {
					for _, name := range names {
						err = errors.Join(err, fence.AdmitTx(ctx, d, tx, name, 7, driver.Exclusive))
					}
					return err
				},
			} {
				tx, err := db.BeginTx(ctx, nil)
				must(t, err)
				must(t, f(ctx, txlock.MySQL, tx, names...), tx.Commit())
			}
			var owned, resources int
			must(t, db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM information_schema.tables WHERE table_name = 'owned'),"+
				" (SELECT count(*) FROM holdfast_fence WHERE resource = x'E697A5')").Scan(&owned, &resources))
			if owned > 0 || resources != 1 {
				t.Errorf("%d tables of a name that was run as SQL; a resource has %d rows by its bytes", owned, resources)
			}
		})
	}
}
