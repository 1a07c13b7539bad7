//go:build soak

package sqliteconn

import (
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestFullDisk: where the file may not grow a request fails with an error, a hold stays, and everything goes on when
// there is room again.
func TestFullDisk(t *testing.T) {
	testserver.StartChild(t, "fill", filepath.Join(t.TempDir(), "locks.db")).End()
}
