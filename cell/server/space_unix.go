//go:build linux || darwin || freebsd

package server

import "syscall"

// freeSpace returns how much of a directory's disk is free for this process, in bytes.
func freeSpace(dir string) (free int64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
