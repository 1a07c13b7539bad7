//go:build soak && linux

package docstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestCellLanguagesPage runs the programs of the page, with the clients that it tells to copy.
func TestCellLanguagesPage(t *testing.T) {
	t.Parallel()
	gson := filepath.Join(testserver.NeedPeers(t), "java", "gson-2.11.0.jar")
	testserver.Need(t, "node", "nodejs")
	testserver.Need(t, "javac", "default-jdk-headless")
	replace := []string{"gson.jar", gson}
	for i, m := range testserver.StartCell(t, testserver.CellOptions{Members: 3}).Members {
		replace = append(replace, string("abc"[i])+".example.org:7433", m.Addr)
	}
	r := newRunner(t, replace...)
	for _, file := range []string{"holdfast_cell.py", "holdfast-cell.mjs", "HoldfastCell.java"} {
		if err := os.WriteFile(filepath.Join(r.dir, file), []byte(read(t, "docs/cell-clients/"+file)), 0o600); err != nil {
			t.Fatal(err)
		}
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
