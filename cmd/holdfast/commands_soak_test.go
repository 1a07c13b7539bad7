//go:build soak && linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestStoreUnreachable(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls"}, {"show", "x"}, {"break", "x", "--token", "1"}, {"run", "x", "--", "touch", w.path("ran")}} {
		w.run(69, append([]string{"--store", "file://" + w.path("file/locks")}, args...)...).expectErr("cannot open file://" + w.path("file/locks"))
	}
	w.env = append(w.env, "XDG_STATE_HOME="+w.path("file"))
	w.unset("HOLDFAST_STORE")
	w.run(69, "ls").expectErr("another store can be named by --store or HOLDFAST_STORE")
}

func TestDoctor(t *testing.T) {
	w := newWorld(t)
	w.run(0, "doctor").expectOut("ok       lock: taking, renewing and giving back a lock took ")
	checks := map[string]string{}
	for line := range strings.Lines(w.run(0, "doctor", "-o", "json").out.String()) {
		var f struct{ Check, Severity, Found, Risk, Remedy string }
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Found == "" {
			t.Fatal(err, line)
		}
		checks[f.Check] = f.Severity
		if (f.Severity != "ok") != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("a finding that is not ok has a risk and a remedy, others have not: %s", line)
		}
	}
	// The test's directory is a temporary one.
	for check, severity := range map[string]string{"clock": "ok", "directory": "ok", "place": "warning", "records": "ok", "lock": "ok"} {
		if checks[check] != severity {
			t.Errorf("%s is %q, want %s", check, checks[check], severity)
		}
	}
	w.run(64, "doctor", "--store", "nosuch://x")
	w.run(1, "doctor", "--store", "file:///proc/version/locks").expectOut("error    lock: cannot open file:///proc/version/locks")
	// Opening creates nothing, so a directory that cannot be created fails when a lock is taken.
	absent := w.run(1, "doctor", "--store", "file:///proc/holdfast")
	absent.expectOut("error    lock: a lock cannot be taken: ")
	absent.expectOut("mkdir /proc/holdfast: no such file or directory")

	// The worst finding decides the exit code. The place is a warning.
	w.run(2, "doctor", "--strict").expectOut("warning  place: ")
	if out := w.run(0, "doctor", "-q").out.String(); strings.Contains(out, "ok  ") || !strings.Contains(out, "warning  place: ") {
		t.Errorf("doctor -q printed\n%s", out)
	}
	w.run(1, "doctor", "--strict", "--store", "redis://127.0.0.1:1").expectOut("connection refused")

	// A damaged record.
	end := w.hold("x")
	end()
	w.hold("damaged")
	files, err := filepath.Glob(filepath.Join(w.locks, "holdfast-names", "*damaged*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(1, "doctor").expectOut("error    records: ")
}

// TestCrontab runs the real program, built, as two crontabs with the same job do.
func TestCrontab(t *testing.T) {
	w := newWorld(t)
	program := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line := program + ` run -n --min-hold 2s job -- sh -c 'echo "$HOLDFAST_TOKEN" >>ran'`
	var shells [2]*exec.Cmd
	var outputs [2]bytes.Buffer
	for i := range shells {
		shells[i] = exec.Command("/bin/sh", "-c", line)
		shells[i].Dir, shells[i].Env = w.dir, []string{"HOME=" + w.dir, "PATH=/usr/bin:/bin"} // as cron has it
		shells[i].Stdout, shells[i].Stderr = &outputs[i], &outputs[i]
		if err := shells[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	codes := map[int]int{}
	for i, shell := range shells {
		shell.Wait()
		codes[shell.ProcessState.ExitCode()]++
		if shell.ProcessState.ExitCode() == 0 && outputs[i].Len() > 0 {
			t.Errorf("cron would send a mail: %s", &outputs[i])
		}
	}
	text, err := os.ReadFile(w.path("ran"))
	if err != nil || strings.Count(string(text), "\n") != 1 || codes[0] != 1 || codes[75] != 1 {
		t.Errorf("exit codes %v, ran with tokens %q, %v", codes, text, err)
	}
}
