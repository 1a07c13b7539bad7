//go:build soak

package bench

import (
	"fmt"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkLives takes and releases locks that nobody else wants, by one goroutine and by 64 with a name each, with the
// rule of package life and without it. The databases sync their commits. Of-without is how much of the speed is left.
func BenchmarkLives(b *testing.B) {
	for name, start := range map[string]func(*testing.B) (url, mark string){
		"redis": func(b *testing.B) (string, string) {
			return "redis://" + testserver.StartRedis(b, testserver.RedisOptions{}).Addr, "?"
		},
		"postgres": func(b *testing.B) (string, string) {
			return testserver.StartPostgres(b, "fsync=on").URL("postgres"), "&"
		},
		"mariadb": func(b *testing.B) (string, string) {
			return testserver.StartMariaDB(b, "--innodb-flush-method=fsync").URL(), "?"
		},
		"mysql": func(b *testing.B) (string, string) {
			return testserver.StartMySQL(b, "--innodb-flush-method=fsync").URL(), "?"
		},
	} {
		b.Run(name, func(b *testing.B) {
			url, mark := start(b)
			with, without := pairAt(b, url), pairAt(b, url+mark+"hf.forget=go")
			for _, workers := range []int{1, 64} {
				b.Run(fmt.Sprint(workers), func(b *testing.B) {
					times := compare(b, workers, 100*min(workers, 4), []way{{"with", with}, {"without", without}})
					b.ReportMetric(median(ratios(times["without"], times["with"])), "of-without")
				})
			}
		})
	}
}
