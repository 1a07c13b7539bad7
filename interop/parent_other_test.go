//go:build soak && !linux

package interop

import "syscall"

// diesWithParent is for Linux. Elsewhere a peer ends with its standard input.
var diesWithParent *syscall.SysProcAttr
