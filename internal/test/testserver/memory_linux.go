package testserver

import (
	"syscall"
	"testing"
)

// memoryDir returns where the files of a server of a test may be kept in memory: a kill of the server loses nothing of
// them, and no test makes the host crash. Suppose that CI's disk takes a third of a second for each synced
// write: then hardly any vote of a Redlock would come in time, and its history would tell nothing. It returns "",
// which is the usual place, if there is no memory for it, if programs may not load libraries from there, and
// for benchmarks: what a disk costs belongs to what they measure.
func memoryDir(t testing.TB) string {
	const dir, tmpfs, noExec, room = "/dev/shm", 0x01021994, 0x8, 1 << 30
	var fs syscall.Statfs_t
	if _, is := t.(*testing.B); is || syscall.Statfs(dir, &fs) != nil || fs.Type != tmpfs || fs.Flags&noExec != 0 {
		return ""
	}
	if fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}
