//go:build soak

package demo

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
	_ "github.com/holdfastlock/holdfast/redislock" // redis://
)

// expectCron fails unless the job ran more than once at some ticks with a plain lock, and once at each with
// a minimum hold.
func expectCron(t *testing.T, store string) {
	t.Helper()
	results, _ := demonstrated[CronResult](t, Cron, store, 6)
	for i, name := range []string{"plain", "min-hold"} {
		r := results[i]
		if r.Strategy != name || r.Ticks != 6 || r.Once+r.Twice != 6 || r.Missed != 0 || (r.Twice == 0) != (name == "min-hold") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestCron(t *testing.T) {
	ownTempDir(t)
	expectCron(t, "")
}

// TestRedis runs both demonstrations with their locks in a server.
func TestRedis(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--requirepass", "s3cr3t"}})
	ownTempDir(t)
	store := "redis://:s3cr3t@" + server.Addr
	expectSale(t, store)
	expectCron(t, store)
	server.Stop()
	err := Sale(t.Context(), Options{Store: store})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("without the server: %v", err)
	}
}

// TestParentDies: when the demonstration is killed, a stopped service ends too.
func TestParentDies(t *testing.T) {
	if os.Getenv(parentEnv) != "" {
		stopAndWait(t)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestParentDies$")
	cmd.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := make([]byte, 20)
	n, err := out.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error says that it was killed
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid[:n])) + "/stat")
		if _, state, _ := strings.Cut(string(text), ") "); err != nil || strings.HasPrefix(state, "Z") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the service is left: %s", text)
		}
	}
}

// parentEnv has the test program be a demonstration that a test kills.
const parentEnv = "HOLDFAST_DEMO_TEST_PARENT"

// stopAndWait stops a service at its payment, writes its process id, and waits.
func stopAndWait(t *testing.T) {
	path := os.Getenv(parentEnv) + "/db"
	db, err := openShop(path)
	if err == nil {
		_, err = db.Exec(createShop, stock)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t.Context())
	p, _, err := f.start(work{Sale: &service{Database: path, PauseFirst: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.await(atPayment); err != nil {
		t.Fatal(err)
	}
	if err := pause(p); err != nil {
		t.Fatal(err)
	}
	fmt.Println(p.Pid)
	select {}
}
