//go:build soak

package doctor

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestCell: three members that do well, and fewer and fewer of them.
func TestCell(t *testing.T) {
	t.Parallel()
	c := testserver.StartCell(t, testserver.CellOptions{Members: 3})
	url := "cell://" + c.Addrs() + "/app"
	findings := examine(t, url)
	for _, check := range []string{"transport", "quorum", "members", "version", "TTL", "space", "store clock", "lock"} {
		if got := findings[check]; got.Severity != OK {
			t.Errorf("%s of a cell that does well: %+v", check, got)
		}
	}
	if got := findings["disk"]; got.Found == "" || got.Severity == Error { // how quick it is is the machine's affair
		t.Errorf("disk: %+v", got)
	}
	if got := examine(t, url+"?hf.ttl=1s")["TTL"]; got.Severity != Error {
		t.Errorf("a TTL that is too short: %+v", got)
	}
	if got := examine(t, "cell://"+c.Members[0].Addr)["members"]; got.Severity != Warning || !strings.Contains(got.Found, "URL names 1") {
		t.Errorf("a URL with one member of three: %+v", got)
	}
	c.Members[2].Kill()
	if got := examine(t, url)["quorum"]; got.Severity != Warning || !strings.Contains(got.Found, c.Members[2].Addr) {
		t.Errorf("with a member down: %+v", got)
	}
	c.Members[1].Kill()
	c.Members[0].Kill()
	if got := examine(t, url)["quorum"]; got.Severity != Error {
		t.Errorf("with all members down: %+v", got)
	}
}

// TestCellsThatDoBadly: one member alone, members of two cells in one URL, and no space.
func TestCellsThatDoBadly(t *testing.T) {
	t.Parallel()
	one, full := testserver.StartCell(t, testserver.CellOptions{}), testserver.StartCell(t, testserver.CellOptions{Args: []string{"--reserve", "1000000000"}})
	if got := examine(t, "cell://"+one.Addrs())["quorum"]; got.Severity != Note {
		t.Errorf("a cell of one: %+v", got)
	}
	if got := examine(t, "cell://"+one.Addrs()+","+full.Addrs())["one cell"]; got.Severity != Error {
		t.Errorf("two cells in one URL: %+v", got)
	}
	if got := examine(t, "cell://"+full.Addrs())["space"]; got.Severity != Error || !strings.Contains(got.Found, "reserve") {
		t.Errorf("a disk below the reserve: %+v", got)
	}
}

// TestCellTransport: only a way that leaves the host needs to be encrypted.
func TestCellTransport(t *testing.T) {
	for _, c := range []struct {
		secure  bool
		members []string
		want    Severity
	}{
		{false, []string{"127.0.0.1:7433", "localhost:7433", "[::1]:7433"}, OK},
		{false, []string{"127.0.0.1:7433", "10.0.0.1:7433"}, Warning},
		{false, []string{"db.example.org:7433"}, Warning},
		{true, []string{"db.example.org:7433"}, OK},
	} {
		p := cellPatient{secure: c.secure, members: c.members}
		if got := p.transport(); len(got) != 1 || got[0].Severity != c.want {
			t.Errorf("%v: %v", c.members, got)
		}
	}
}
