//go:build soak && linux

package docstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestCellLanguagesPage runs the program of the page, with the client that it tells to copy. Module interop runs
// the clients of all languages.
func TestCellLanguagesPage(t *testing.T) {
	t.Parallel()
	var replace []string
	for i, m := range testserver.StartCell(t, testserver.CellOptions{Members: 3}).Members {
		replace = append(replace, string("abc"[i])+".example.org:7433", m.Addr)
	}
	r := newRunner(t, replace...)
	if err := os.WriteFile(filepath.Join(r.dir, "holdfast_cell.py"), []byte(read(t, "docs/cell-clients/holdfast_cell.py")), 0o600); err != nil {
		t.Fatal(err)
	}
	r.page("docs/cell-languages.md")
}

// TestCellAPIPage runs the calls of the page. They take longer than the TTL of its session, which the
// page's script keeps alive.
func TestCellAPIPage(t *testing.T) {
	t.Parallel()
	testserver.Need(t, "curl", "curl")
	testserver.Need(t, "jq", "jq")
	addr := testserver.StartCell(t, testserver.CellOptions{}).Addrs()
	newRunner(t, "localhost:7433", addr).page("docs/cell-api.md")
}
