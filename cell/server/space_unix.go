//go:build linux || darwin || freebsd

package server

import (
	"math"
	"syscall"
)

// freeSpace returns how much of a directory's disk is free for this process, in bytes; more than any disk has: nobody knows.
func freeSpace(dir string) int64 {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return math.MaxInt64
	}
	return int64(st.Bavail) * int64(st.Bsize)
}
