package doctor

import (
	"database/sql"
	"testing"
	"time"
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
