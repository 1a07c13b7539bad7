//go:build soak && linux

package docstest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := commandDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
