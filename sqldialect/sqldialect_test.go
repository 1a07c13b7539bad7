package sqldialect

import "testing"

func TestUnknown(t *testing.T) {
	for d, want := range map[Dialect]string{0: "unknown dialect", Postgres: "postgres", MySQL: "mysql", SQLite: "sqlite", 4: "unknown dialect"} {
		known := want != "unknown dialect"
		func() {
			defer func() {
				if (recover() == nil) != known {
					t.Errorf("Words of dialect %d: panics if it is known, or does not if it is unknown", uint8(d))
				}
			}()
			d.Words("{key}")
		}()
		if d.String() != want || (d.Check() == nil) != known {
			t.Errorf("dialect %d is %q: %v", uint8(d), d, d.Check())
		}
	}
}
