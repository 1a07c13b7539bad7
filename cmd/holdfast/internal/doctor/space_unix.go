//go:build linux || darwin || freebsd

package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
)

// fileSpace checks that records can be written.
func fileSpace(_ context.Context, p Patient) []Finding {
	var st syscall.Statfs_t
	dir := filepath.FromSlash(p.URL.Path)
	if err := syscall.Statfs(dir, &st); err != nil {
		return nil // the directory's finding says why
	}
	return []Finding{judgeSpace(dir, uint64(st.Bavail)*uint64(st.Bsize), uint64(st.Files), uint64(st.Ffree))}
}

// judgeSpace judges what is left on a file system: bytes, and files of at most
// so many; 0 where the file system has no such bound.
func judgeSpace(dir string, bytes, files, left uint64) Finding {
	const minBytes, minFiles = 16 << 20, 1000
	f := Finding{Check: "space", Severity: OK, Found: fmt.Sprintf("%s has room for records", dir)}
	switch {
	case bytes < minBytes:
		f.Found = fmt.Sprintf("only %d kB are left for %s", bytes>>10, dir)
	case files > 0 && left < minFiles:
		f.Found = fmt.Sprintf("only %d files can still be made where %s is", left, dir)
	default:
		return f
	}
	f.Severity = Warning
	f.Risk = "when the disk is full locks cannot be taken, and those that are held are lost"
	f.Remedy = "make room, or use a directory on another disk"
	return f
}
