package testserver

import "syscall"

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
