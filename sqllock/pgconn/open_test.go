package pgconn

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func TestParse(t *testing.T) {
	u, err := driver.ParseURL("postgres://u:p%2F@example.org:1234/app?sslmode=disable&hf.tables=app_locks&connect_timeout=7")
	if err != nil {
		t.Fatal(err)
	}
	config, o, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "example.org" || config.Port != 1234 || config.User != "u" || config.Password != "p/" || config.Database != "app" ||
		config.ConnectTimeout != 7*time.Second || config.TLSConfig != nil || config.RuntimeParams["hf.tables"] != "" {
		t.Errorf("%+v", config)
	}
	if o.Prefix != "app_locks" {
		t.Errorf("%+v", o)
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"postgres://u:s3cret@h/app?hf.table=x":      `"hf.table"`,
		"postgres:app":                              "malformed",
		"postgres://u:s3cret@h/app?sslmode=perhaps": "does not understand",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}
