//go:build soak

package doctor

import (
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// count returns a number that the server knows.
func count(t *testing.T, driver, dsn, text string) (n int) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), text).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// prepared opens a store, so that its tables are there, and closes it.
func prepared(t *testing.T, rawURL string) string {
	t.Helper()
	client, err := holdfast.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	return rawURL
}

// alone runs one check of a store, which takes less long than all.
func alone(t *testing.T, rawURL string, checks []Check, w want) {
	t.Helper()
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p := Patient{URL: u}
	if p.Client, p.Err = holdfast.Open(t.Context(), rawURL); p.Err == nil {
		defer p.Client.Close()
	}
	found := map[string]Finding{}
	for _, check := range checks {
		for _, f := range check(t.Context(), p) {
			if (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") || strings.Contains(fmt.Sprint(f), password) {
				t.Errorf("a finding without a risk or a remedy, or with a password: %+v", f)
			}
			found[f.Check] = f
		}
	}
	expect(t, found, w)
}

// aTime is a server's time in microseconds, as its text follows its length: in both
// protocols the last byte before it is that.
var aTime = regexp.MustCompile(`\x10(1\d{15})`)

// otherSQLClock lets a server's clock show what a function makes of its time.
func otherSQLClock(t *testing.T, server string, show func(time.Time) time.Time) string {
	return between(t, server, func(b []byte) []byte {
		return aTime.ReplaceAllFunc(b, func(text []byte) []byte {
			micros, _ := strconv.ParseInt(string(text[1:]), 10, 64)
			return strconv.AppendInt([]byte{16}, show(time.UnixMicro(micros)).UnixMicro(), 10)
		})
	})
}

// sqlClocks looks at servers whose clocks are off; url makes one of an address.
func sqlClocks(t *testing.T, server string, checks []Check, url func(addr string) string) {
	begun := time.Now()
	for name, c := range map[string]struct {
		show func(time.Time) time.Time
		want want
	}{
		"fast":        {func(at time.Time) time.Time { return at.Add(90 * time.Second) }, want{"server clock", Warning, "is 1m"}},
		"behind":      {func(at time.Time) time.Time { return at.Add(-time.Hour) }, want{"server clock", Warning, "is -"}},
		"runs faster": {func(at time.Time) time.Time { return at.Add(at.Sub(begun)) }, want{"server clock", Error, "server's clock ran "}},
	} {
		t.Run("clock/"+name, func(t *testing.T) {
			t.Parallel()
			alone(t, url(otherSQLClock(t, server, c.show)), checks, c.want)
		})
	}
}
