//go:build soak

package bench

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkNotify writes a row and notifies one client of it, in one statement as a hand-over is, while so many clients
// listen, each to a channel of its own. PostgreSQL wakes every one that listens in the database for each notification:
// CPU-µs is what all processors spend on one, also those of the clients that it does not concern. 0 is the
// statement that notifies nobody.
func BenchmarkNotify(b *testing.B) {
	server := startPostgres(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(ctx, server.URL("postgres"))
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	writer := connect()
	defer writer.Close(context.Background())
	if _, err := writer.Exec(ctx, "CREATE TABLE one (version bigint); INSERT INTO one VALUES (0)"); err != nil {
		b.Fatal(err)
	}
	listening := 0
	for _, listeners := range []int{0, 1, 16, 64, 256} {
		for ; listening < listeners; listening++ {
			c := connect()
			if _, err := c.Exec(ctx, fmt.Sprintf("LISTEN c%d", listening)); err != nil {
				b.Fatal(err)
			}
			go func() {
				for !c.IsClosed() {
					c.WaitForNotification(ctx) // closes the connection when the benchmark ends
				}
			}()
		}
		b.Run(strconv.Itoa(listeners), func(b *testing.B) {
			statement := "UPDATE one SET version = version + 1"
			if listeners > 0 {
				statement = "WITH done AS (" + statement + " RETURNING version) SELECT pg_notify('c' || version % " + strconv.Itoa(listeners) + ", 'yours') FROM done"
			}
			before, begun := loadNow(), time.Now()
			for b.Loop() {
				if _, err := writer.Exec(ctx, statement); err != nil {
					b.Fatal(err)
				}
			}
			time.Sleep(time.Second / 10) // the last ones read it
			spent := float64(loadNow().busy-before.busy) / ticksPerSecond
			b.ReportMetric(1e6*spent/float64(b.N), "CPU-µs")
			b.ReportMetric(float64(time.Since(begun).Microseconds())/float64(b.N), "µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}
