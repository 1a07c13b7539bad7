//go:build !linux

package testserver

import "testing"

func memoryDir(testing.TB) string { return "" }
