//go:build !linux

package testserver

import (
	"syscall"
	"testing"
)

// endingWithParent returns the settings: here servers outlive a test that is killed.
func endingWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }

func memoryDir(testing.TB) string { return "" }
