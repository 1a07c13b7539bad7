//go:build soak

package testserver

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServersEndWithTheirParent kills a test that has started servers.
func TestServersEndWithTheirParent(t *testing.T) {
	const role = "HOLDFAST_TEST_STARTS_SERVERS"
	if os.Getenv(role) != "" {
		postgres, redis := StartPostgres(t), StartRedis(t, RedisOptions{})
		for _, pid := range append(postgres.children(), postgres.cmd.Process.Pid, redis.cmd.Process.Pid) {
			fmt.Println("server", pid)
		}
		fmt.Println("started")
		time.Sleep(time.Hour) // it is killed
	}
	dir, err := os.MkdirTemp("", "hf-") // what a killed test leaves behind
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestServersEndWithTheirParent$")
	child.Env = append(os.Environ(), role+"=1", "TMPDIR="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	var servers []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "started" {
		if pid, is := strings.CutPrefix(lines.Text(), "server "); is {
			servers = append(servers, pid)
		}
	}
	if len(servers) < 4 {
		t.Fatalf("the test has started the processes %q only", servers)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for _, pid := range servers {
			if runs(pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			for _, pid := range left {
				if n, err := strconv.Atoi(pid); err == nil {
					if p, err := os.FindProcess(n); err == nil {
						p.Kill()
					}
				}
			}
			t.Fatalf("the processes %q outlive the test that has started them", left)
		}
	}
}

// runs reports whether a process has not ended.
func runs(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}
