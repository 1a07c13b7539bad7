package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// children returns the processes that this one has.
func children(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		t.Fatal(err) // or nothing would ever be found
	}
	return childrenOf(t, os.Getpid())
}

func childrenOf(t *testing.T, parent int) (found []string) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		found = append(found, strings.Fields(string(text))...)
	}
	return found
}
