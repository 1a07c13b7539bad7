package pgconn

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func TestParse(t *testing.T) {
	u, err := driver.ParseURL("postgres://u:p%2F@example.org:1234/app?sslmode=disable&hf.tables=app_locks&connect_timeout=7")
	must(t, err)
	config, o, err := parse(u)
	must(t, err)
	if config.Host != "example.org" || config.Port != 1234 || config.User != "u" || config.Password != "p/" || config.Database != "app" ||
		config.ConnectTimeout != 7*time.Second || config.TLSConfig != nil || config.RuntimeParams["hf.tables"] != "" {
		t.Errorf("%+v", config)
	}
	if o.Prefix != "app_locks" {
		t.Errorf("%+v", o)
	}
}

// TestParseSeveralHosts: connections lead to the host that takes writes, unless the URL says how to
// find it.
func TestParseSeveralHosts(t *testing.T) {
	for raw, want := range map[string]struct {
		hosts   string
		checks  bool
		timeout time.Duration
	}{
		"postgres://u@a:1,b:2,c:5433/app?sslmode=disable":                       {"a:1 b:2 c:5433", true, dialEachTimeout},
		"postgres://u@/app?host=a,b&port=1,2&sslmode=disable":                   {"a:1 b:2", true, dialEachTimeout},
		"postgres://u@a,b/app?target_session_attrs=primary&sslmode=disable":     {"a:5432 b:5432", true, dialEachTimeout},
		"postgres://u@a,b/app?connect_timeout=7&sslmode=disable":                {"a:5432 b:5432", true, 7 * time.Second},
		"postgres://u@a/app?sslmode=disable":                                    {"a:5432", false, dialTimeout},
		"postgres://u@a/app?target_session_attrs=any&sslmode=disable":           {"a:5432", false, dialTimeout},
		"postgres://u@a/app?target_session_attrs=read-write&sslmode=disable":    {"a:5432", true, dialTimeout},
		"postgresql://u@a,b/app?target_session_attrs=read-write&sslmode=prefer": {"a:5432 a:5432 b:5432 b:5432", true, dialEachTimeout},
	} {
		u, err := driver.ParseURL(raw)
		must(t, err)
		config, _, err := parse(u)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		hosts := fmt.Sprintf("%s:%d", config.Host, config.Port)
		for _, f := range config.Fallbacks {
			hosts += fmt.Sprintf(" %s:%d", f.Host, f.Port)
		}
		if hosts != want.hosts || config.ValidateConnect != nil != want.checks || config.ConnectTimeout != want.timeout {
			t.Errorf("%s: hosts %s, checked: %v, within %v; want %+v", raw, hosts, config.ValidateConnect != nil, config.ConnectTimeout, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"postgres://u:s3cret@h/app?hf.table=x":                             `"hf.table"`,
		"postgres:app":                                                     "malformed",
		"postgres://u:s3cret@/app?socket=/run/postgresql":                  "?host=/run/postgresql",
		"postgres://u:s3cret@/app?unix_socket=/run/postgresql":             "?host=/run/postgresql",
		"postgres://u:s3cret@/app?host=run/postgresql":                     "?host=/run/postgresql",
		"postgres://u:s3cret@/app?host=/run/postgresql/.s.PGSQL.5432":      "?host=/run/postgresql",
		"postgres://u:s3cret@h/app?sslmode=perhaps":                        "does not understand",
		"postgres://u:s3cret@a,b/app?target_session_attrs=any":             "read-write is right",
		"postgres://u:s3cret@a,b/app?target_session_attrs=standby":         "read-write is right",
		"postgres://u:s3cret@h/app?target_session_attrs=read-only":         "read-write is right",
		"postgres://u:s3cret@h/app?target_session_attrs=prefer-standby":    "read-write is right",
		"postgres://u:s3cret@h/app?target_session_attrs=read-write-please": "does not understand",
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}
