package testserver

import (
	"syscall"
	"testing"
)

// endingWithParent returns the settings with one more: the program ends (SIGKILL) when the thread
// that has started it does, also if the test is killed. The processes that PostgreSQL starts end
// when they notice that the first of them has.
func endingWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	with := syscall.SysProcAttr{}
	if attr != nil {
		with = *attr
	}
	with.Pdeathsig = syscall.SIGKILL
	return &with
}

// memoryDir returns where the files of a server of a test may be kept in memory: a kill of the server loses nothing
// of them, and synced writes take no time on a slow disk, which would keep the votes of a Redlock from coming in
// time. It returns "", which is the usual place, if there is no memory for it, if programs may not load libraries
// from there, and for benchmarks: what a disk costs belongs to what they measure.
func memoryDir(t testing.TB) string {
	const dir, tmpfs, noExec, room = "/dev/shm", 0x01021994, 0x8, 1 << 30
	var fs syscall.Statfs_t
	if _, is := t.(*testing.B); is || syscall.Statfs(dir, &fs) != nil || fs.Type != tmpfs || fs.Flags&noExec != 0 || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}
