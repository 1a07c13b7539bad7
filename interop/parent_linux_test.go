//go:build soak

package interop

import "syscall"

// diesWithParent has the kernel kill a peer when this process ends, also a peer that is stopped.
var diesWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
