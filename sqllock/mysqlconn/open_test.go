package mysqlconn

import (
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]struct{ addr, user, password, database, tables string }{
		"mysql://u%40x:p%2F@example.org:1234/app?tls=skip-verify&hf.tables=app_locks": {"example.org:1234", "u@x", "p/", "app", "app_locks"},
		"mysql:///app": {"localhost:3306", "", "", "app", ""},
	} {
		u, err := driver.ParseURL(raw)
		must(t, err)
		config, o, err := parse(u)
		must(t, err)
		if config.Addr != want.addr || config.User != want.user || config.Passwd != want.password || config.DBName != want.database {
			t.Errorf("%s is %+v", raw, config)
		}
		if o.Prefix != want.tables {
			t.Errorf("%s has the options %+v", raw, o)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"mysql://u:s3cret@h/app?hf.table=x":            `"hf.table"`,
		"mysql://u:s3cret@h":                           "no database",
		"mysql://u:s3cret@/app?socket=run/mysqld.sock": "?socket=/run", "mysql://u:s3cret@/app?socket=": "?socket=/run",
		"mysql://u:s3cret@h/app?socket=/run/mysqld.sock": "?socket=/run", "mysql://u:s3cret@/app?unix_socket=/run/mysqld.sock": "?socket=/run",
		"mysql://u:s3cret@/app?host=/run/mysqld.sock": "?socket=/run", "mysql://u:s3cret@unix(/run/mysqld.sock)/app": "?socket=/run",
		"mysql://u:s3cret@/run/mysqld/mysqld.sock": "?socket=/run",
		"mysql://u:s3cret@h/a/b":                   "no database",
		"mysql://u:s3cret@h/app?timeout=perhaps":   "does not understand",
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}
