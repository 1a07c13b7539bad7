//go:build soak

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // for sqlAdmin
)

func TestSQLiteDamaged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	here := prepared(t, "sqlite://"+file)
	size := int64(0)
	if info, err := os.Stat(file); err == nil {
		size = info.Size()
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096 // the first has the schema
	if _, err := f.WriteAt(make([]byte, size-page), page); err != nil {
		t.Fatal(err)
	}
	f.Close()
	expect(t, examine(t, here), want{"tables", Error, "holdfast_locks: "}, want{"lock", Error, ""})
}
