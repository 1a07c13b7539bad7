//go:build soak && linux

package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

const (
	packaging = "../../../../packaging"
	job       = "holdfast-cell"
	programs  = "programs"
)

// queries are those of a dashboard, by panel.
func queries(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			all[fmt.Sprint(p.Title, " ", i)] = strings.NewReplacer("$job", job, "$programs", programs, "$__rate_interval", "10s").Replace(target.Expr)
		}
	}
	return all
}

// alert matches an alert of the rules and what it compares.
var alert = regexp.MustCompile(`(?m)^ +- alert: (\S+)\n +expr: (.*) [<>] [0-9.e]+$`)

// load has clients take locks, and wait for them, until the context ends.
func load(ctx context.Context, t *testing.T, addrs string) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for i := range 4 {
		c, err := holdfast.Open(ctx, "cell://"+addrs)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer c.Close()
			for n := 0; ctx.Err() == nil; n++ {
				name := []string{"crowd", fmt.Sprint("own/", i)}[n%2]
				if l, err := c.Mutex(name, nil).Acquire(ctx); err == nil {
					l.Release()
				}
				if l, err := c.Mutex("crowd", nil).TryAcquire(ctx); err == nil {
					l.Release()
				}
			}
		})
	}
	return &all
}

// TestDashboards: Prometheus takes the alerts, and every query of the alerts and of the dashboard finds something
// in a cell that has load, and of which first one member dies and then the majority, and in a program with locks that is
// cut off for a while at first.
func TestDashboards(t *testing.T) {
	rules, err := filepath.Abs(packaging + "/prometheus/holdfast-cell.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testserver.Need(t, "promtool", "prometheus"), "check", "rules", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wanted := queries(t, packaging+"/grafana/holdfast-cell.json")
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	alerts := alert.FindAllStringSubmatch(string(text), -1)
	if len(alerts) != strings.Count(string(text), "- alert:") {
		t.Fatalf("of the alerts these were read: %v", alerts)
	}
	for _, a := range alerts {
		wanted[a[1]] = a[2]
	}
	cell := testserver.StartCell(t, testserver.CellOptions{Members: 3})
	link := chaos.StartProxy(t, cell.Members[2].Addr) // this one lives
	shown := startProgram(t, "cell://"+link.Addr)
	prometheus := startPrometheus(t, rules, map[string]string{job: cell.Addrs(), programs: shown})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	clients := load(ctx, t, cell.Addrs())
	defer time.AfterFunc(2*time.Second, link.Cut).Stop()
	defer time.AfterFunc(4*time.Second, link.Heal).Stop()
	for stage, lasts := range []time.Duration{10 * time.Second, 2 * time.Second, time.Minute} {
		if stage > 0 {
			cell.Members[stage-1].Kill()
		}
		for end := time.Now().Add(lasts); len(wanted) > 0 && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			for name, query := range wanted {
				if series(t, prometheus, query) > 0 {
					delete(wanted, name)
				}
			}
		}
	}
	for name, query := range wanted {
		t.Errorf("%s finds nothing: %s", name, query)
	}
	firing := fmt.Sprintf("ALERTS{alertname=%q}", "HoldfastMemberDown")
	for end := time.Now().Add(10 * time.Second); series(t, prometheus, firing) == 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no alert tells of the members that died")
		}
	}
	stop()
	clients.Wait()
}

// startPrometheus starts Prometheus, which looks at the targets of each job, host:port, every half a second, and ends
// with the test. Rules is a file.
func startPrometheus(t *testing.T, rules string, jobs map[string]string) (addr string) {
	t.Helper()
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
`, rules)
	for job, targets := range jobs {
		config += fmt.Sprintf("- {job_name: %q, static_configs: [{targets: [\"%s\"]}]}\n", job, strings.ReplaceAll(targets, ",", `", "`))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	testserver.Must(t, os.WriteFile(file, []byte(config), 0o600))
	program := testserver.Need(t, "prometheus", "prometheus")
	return testserver.Start(t, "Server is ready", func(port string) []string {
		return []string{program, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:" + port}
	})
}

// series returns how many series a query of Prometheus has now.
func series(t *testing.T, addr, query string) int {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Status != "success" {
		t.Fatalf("%s: %s, %v", query, body, err)
	}
	return len(said.Data.Result)
}
