package doctor

import (
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // for sqlAdmin
)

func TestJudgeRoles(t *testing.T) {
	for _, c := range []struct {
		roles    postgresRoles
		severity Severity
		says     string
	}{
		{postgresRoles{primaries: []string{"a"}, standbys: []string{"b", "c"}}, OK, "takes writes: a; standby: b, c"},
		{postgresRoles{primaries: []string{"a", "b"}, silent: []string{"c"}}, Error, "takes writes: a, b; not reached: c"},
		{postgresRoles{standbys: []string{"a"}, silent: []string{"b"}}, Error, "standby: a; not reached: b"},
		{postgresRoles{primaries: []string{"a"}, readOnly: []string{"b"}}, Warning, "read-only: b"},
		{postgresRoles{primaries: []string{"a"}, silent: []string{"b"}}, Warning, "not reached: b"},
	} {
		f := judgeRoles(c.roles)[0]
		if f.Severity != c.severity || !strings.Contains(f.Found, c.says) || (f.Risk == "") != (c.severity == OK) {
			t.Errorf("%+v: %+v", c.roles, f)
		}
	}
}
