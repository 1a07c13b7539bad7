//go:build soak && linux

package main

import (
	"strconv"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func nowStamp() driver.Instant { return driver.HostClock.Now() }
