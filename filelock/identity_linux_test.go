//go:build soak

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func init() { childModes["bound"] = bound }

// TestOneDirectoryUnderTwoPaths: a directory that is mounted at a second path is one store, so All takes locks
// in the same order by either path.
func TestOneDirectoryUnderTwoPaths(t *testing.T) {
	spawn(t, "bound", t.TempDir(), apart()).expect("fine")
}

// bound is a child that mounts a directory at a second path, with a space.
func bound(dir string) error {
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "the second")
	if err := errors.Join(
		os.Mkdir(first, 0o700), os.Mkdir(second, 0o700),
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount(first, second, "", syscall.MS_BIND, ""),
	); err != nil {
		return err
	}
	stores := map[string]string{}
	for _, path := range []string{first + "/locks", second + "/locks", first + "/others", first, second} {
		c, err := Open(context.Background(), Options{Dir: path})
		if err != nil {
			return err
		}
		defer c.Close()
		stores[path] = c.Caps().Store
	}
	if stores[first+"/locks"] != stores[second+"/locks"] || stores[first] != stores[second] {
		return fmt.Errorf("one directory is two stores: %q", stores)
	}
	if stores[first+"/locks"] == stores[first+"/others"] || stores[first] == stores[first+"/locks"] {
		return fmt.Errorf("two directories are one store: %q", stores)
	}
	if err := os.Mkdir(first+"/locks", 0o700); err != nil {
		return err
	}
	c, err := Open(context.Background(), Options{Dir: second + "/locks"})
	if err != nil {
		return err
	}
	defer c.Close()
	if c.Caps().Store != stores[first+"/locks"] {
		return fmt.Errorf("a store is another once its directory exists: %q, %q", c.Caps().Store, stores)
	}
	fmt.Println("fine")
	return nil
}
