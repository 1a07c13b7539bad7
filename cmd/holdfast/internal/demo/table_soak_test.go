//go:build soak

package demo

import (
	"os/exec"
	"strings"
	"testing"
)

// TestSmallProgram: the program of `make demo` links none of the clients of servers, which take minutes to
// compile.
func TestSmallProgram(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./sale").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "modernc.org/sqlite") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, heavy := range []string{"google.golang.org/", "go.etcd.io/", "github.com/jackc/", "github.com/go-sql-driver/", "github.com/redis/", "github.com/spf13/"} {
		if strings.Contains(string(out), "\n"+heavy) {
			t.Errorf("it links %s", heavy)
		}
	}
}
