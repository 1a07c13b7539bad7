package demo

import (
	"os"
	"testing"
)

// TestMain lets the test program be the processes of the demo too.
func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Child())
	}
	os.Exit(m.Run())
}

func TestTry(t *testing.T) {
	if err := Run(t.Context(), Options{Out: os.Stdout, Progress: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	if err := Cron(t.Context(), CronOptions{Out: os.Stdout, Progress: os.Stderr}); err != nil {
		t.Fatal(err)
	}
}
