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

// sqlAdmin returns what prepares a database.
func sqlAdmin(t *testing.T, driver, dsn string) func(text string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

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

// allGood expects that all of some checks are well, and that there are no others but
// those that depend on the machine.
func allGood(t *testing.T, found map[string]Finding, checks ...string) {
	t.Helper()
	for _, check := range checks {
		expect(t, found, want{check, OK, ""})
	}
	for check, says := range map[string]string{"clock": "clock", "latency": "renewals", "lock": "took "} {
		expect(t, found, want{check, found[check].Severity, says})
	}
	if len(found) != len(checks)+3 {
		t.Errorf("%d findings: %v", len(found), found)
	}
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

func TestJudgeSQL(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		name string
		got  Finding
		want Severity
	}{
		{"few connections", judgeConnections(80, 100), OK},
		{"many connections", judgeConnections(81, 100), Warning},
		{"no keepalives needed", judgeKeepalives(true, 2*time.Hour, 0), OK},
		{"the system's keepalives", judgeKeepalives(false, 2*time.Hour, 0), Note},
		{"keepalives", judgeKeepalives(false, time.Minute, 0), OK},
		{"idle connections here", judgeIdle(true, 8*time.Hour), OK},
		{"idle connections", judgeIdle(false, 8*time.Hour), Note},
		{"few idle connections", judgeIdle(false, 5*time.Minute), OK},
		{"a young table", judgeBloat("t", 0, 900, mib, false, 0), OK},
		{"many rows in use", judgeBloat("t", 50_000, 60_000, 99*mib, false, 0), OK},
		{"dead rows", judgeBloat("t", 10, 60_000, 99*mib, false, 0), Warning},
		{"no autovacuum", judgeBloat("t", 0, 0, 0, true, 0), Warning},
		{"an old transaction", judgeBloat("t", 0, 0, 0, false, time.Hour), Warning},
		{"little data", judgeHistory("t", 10, mib, 5), OK},
		{"many rows", judgeHistory("t", 10_000, 300*mib, 5), OK},
		{"much data", judgeHistory("t", 10, 300*mib, 5), Warning},
		{"much history", judgeHistory("t", 10, mib, 2_000_000), Warning},
		{"a log", judgeLog("f", 5*mib), OK},
		{"a long log", judgeLog("f", 65*mib), Warning},
	} {
		if c.got.Severity != c.want || (c.want != OK) != (c.got.Risk != "" && c.got.Remedy != "") {
			t.Errorf("%s: %+v, want %s", c.name, c.got, c.want)
		}
	}
}
