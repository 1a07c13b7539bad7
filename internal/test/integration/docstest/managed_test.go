//go:build linux

package docstest

import (
	"regexp"
	"testing"
)

// managedRedis are services, and the commands that their documentation says cannot be used there.
var managedRedis = map[string]string{
	"Amazon ElastiCache": "bgrewriteaof bgsave config debug migrate replicaof save slaveof shutdown sync",
	"Oracle OCI Cache":   "acl bgrewriteaof bgsave cluster config debug migrate module psync replicaof save shutdown sync",
}

// managedDatabases are services that withhold the superuser.
var managedDatabases = map[string]string{
	"Amazon RDS for PostgreSQL": "postgresql", "Amazon Aurora PostgreSQL": "postgresql",
	"Amazon RDS for MySQL, for MariaDB": "mysql", "Amazon Aurora MySQL": "mysql",
}

// verdict matches a row of a page's table of managed services.
var verdict = regexp.MustCompile(`(?m)^\| ([^|]+) \| (works|does not work|not known)\b[^|]*\|`)

// TestVerdicts: a page says that a service works only if a test has run with its restrictions.
func TestVerdicts(t *testing.T) {
	rows := 0
	for page := range schemes {
		for _, row := range verdict.FindAllStringSubmatch(read(t, pageOf(page)), -1) {
			rows++
			_, redis := managedRedis[row[1]]
			database := managedDatabases[row[1]] == page
			if row[2] == "works" && !redis && !database {
				t.Errorf("%s: %s works: no test has run with its restrictions", pageOf(page), row[1])
			}
		}
	}
	if rows < 8 {
		t.Errorf("%d verdicts were found", rows)
	}
}
