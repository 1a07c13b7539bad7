//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// explain says of an error what it means for the locks, and what to do. The
// name may be empty.
func explain(err error, name, path string) error {
	if err == nil {
		return nil
	}
	what := path
	if name != "" {
		what = fmt.Sprintf("record of %q (%s)", name, path)
	}
	switch {
	case errors.Is(err, errDamaged):
		return fmt.Errorf("%s is %w: nobody gets this lock until the file is deleted; do that when no process holds it", what, err)
	case errors.Is(err, errForeign):
		return fmt.Errorf("%s is %w: nobody gets this lock until it is moved away", what, err)
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%s: %w: a symbolic link is where a file of Holdfast's belongs", what, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: %s", what, err, whose(path))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w: nothing was changed; free some space", what, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w: locks need a directory that can be written", what, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%s: %w: raise the limit (ulimit -n)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// whose says to whom a file, or else its nearest directory, belongs.
func whose(path string) string {
	info, err := os.Lstat(path)
	for err != nil && path != "/" && path != "." {
		path = filepath.Dir(path)
		info, err = os.Lstat(path)
	}
	if err != nil {
		return "and it cannot be looked at"
	}
	owner := "another user"
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = fmt.Sprintf("uid %d, gid %d", st.Uid, st.Gid)
	}
	return fmt.Sprintf("%s belongs to %s with mode %v, and this process runs as uid %d", path, owner, info.Mode(), os.Geteuid())
}
