package demo

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// children returns the processes that this one has, with their names.
func children(t *testing.T) (found []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue // a thread that has ended
		}
		for pid := range strings.FieldsSeq(string(text)) {
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			found = append(found, fmt.Sprintf("%s (%s)", pid, strings.TrimSpace(string(name))))
		}
	}
	return found
}
