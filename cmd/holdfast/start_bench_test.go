//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkRunTrue measures what a short command costs under a lock: `holdfast run x -- true` with files,
// beside the start of the program alone and the system's flock.
func BenchmarkRunTrue(b *testing.B) {
	dir := b.TempDir()
	program := filepath.Join(dir, "holdfast")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"run", []string{program, "run", "x", "--", "true"}},
		{"start", []string{program, "version"}},
		{"flock", []string{"flock", filepath.Join(dir, "file"), "true"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command(c.args[0], c.args[1:]...)
				cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file://"+filepath.Join(dir, "locks"))
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}
