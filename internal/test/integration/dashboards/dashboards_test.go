//go:build soak && linux

package dashboards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	query "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

const (
	packaging = "../../../../packaging"
	cells     = "holdfast-cell" // the job, and the beginning of files' names
	programs  = "holdfast"
)

// labelValues matches the query of a variable that offers the values of a label.
var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// queries returns what a dashboard asks Prometheus, by panel or variable. Grafana's own types read the file, and refuse
// a field that they do not know.
func queries(t *testing.T, job string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(packaging + "/grafana/" + job + ".json")
	testserver.Must(t, err)
	grafana := cog.NewRuntime()
	grafana.RegisterPanelcfgVariant(timeseries.VariantConfig())
	grafana.RegisterDataqueryVariant(query.VariantConfig())
	//lint:ignore SA1019 the newer form is only for Grafana 12 and later
	var d, strict dashboard.Dashboard
	if err := strict.UnmarshalJSONStrict(text); err.Error() != "" { // it is never nil, and the panels are left out
		t.Errorf("%s: %v", job, err)
	}
	err = json.Unmarshal(text, &d)
	if err := errors.Join(err, d.Validate()); err != nil {
		t.Fatalf("%s: %v", job, err)
	}
	all, values, ids := map[string]string{}, []string{"$__rate_interval", "10s"}, map[uint32]bool{}
	for _, v := range d.Templating.List {
		if v.Type == dashboard.VariableTypeDatasource {
			continue
		}
		values = append(values, "$"+v.Name, job)
		if v.Type == dashboard.VariableTypeQuery {
			m := labelValues.FindStringSubmatch(*v.Query.String)
			all[fmt.Sprintf("%s $%s", job, v.Name)] = fmt.Sprintf("count by (%s) (%s)", m[2], m[1])
		}
	}
	for _, p := range d.Panels {
		title, unit, id := of(p.Panel.Title), of(p.Panel.FieldConfig.Defaults.Unit), of(p.Panel.Id)
		if of(p.Panel.Description) == "" || !slices.Contains([]string{"s", "ops", "short", "bytes", "percentunit"}, unit) || ids[id] {
			t.Errorf("%s: the panel %q has no description, the unit %q or the number of another, %d", job, title, unit, id)
		}
		ids[id] = true
		for _, target := range p.Panel.Targets {
			q := target.(*query.Dataquery)
			expr := strings.NewReplacer(values...).Replace(q.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable is not there: %s", title, q.Expr)
			}
			all[fmt.Sprint(job, " ", title, " ", of(q.RefId))] = expr
		}
	}
	return all
}

// of returns what a field has, or its zero value.
func of[T any](field *T) (value T) {
	if field != nil {
		value = *field
	}
	return value
}

// alert matches an alert of the rules and what it compares.
var alert = regexp.MustCompile(`(?m)^ +- alert: (\S+)\n +expr: (.*) [<>] [0-9.e]+$`)

// alerts returns what the alerts ask Prometheus, without the comparison.
func alerts(t *testing.T, job string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(packaging + "/prometheus/" + job + ".rules.yml")
	testserver.Must(t, err)
	all := map[string]string{}
	for _, m := range alert.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	if len(all) != strings.Count(string(text), "- alert:") {
		t.Fatalf("of the alerts these were read: %v", all)
	}
	return all
}

// TestRules: promtool takes the alerts, and each of them fires in a test of promtool's.
func TestRules(t *testing.T) {
	for _, job := range []string{cells, programs} {
		tests := "testdata/" + job + ".test.yml"
		for _, args := range [][]string{{"check", "rules", packaging + "/prometheus/" + job + ".rules.yml"}, {"test", "rules", tests}} {
			if out, err := exec.Command(testserver.Need(t, "promtool", "prometheus"), args...).CombinedOutput(); err != nil {
				t.Errorf("promtool %v: %v: %s", args, err, out)
			}
		}
		text, err := os.ReadFile(tests)
		testserver.Must(t, err)
		for name := range alerts(t, job) {
			if !strings.Contains(string(text), fmt.Sprintf("alertname=%q", name)) {
				t.Errorf("%s does not fire %s", tests, name)
			}
		}
	}
}

// load has clients take locks, and wait for them, until the context ends.
func load(ctx context.Context, t *testing.T, addrs string) *sync.WaitGroup {
	t.Helper()
	var all sync.WaitGroup
	for i := range 4 {
		c, err := holdfast.Open(ctx, "cell://"+addrs)
		testserver.Must(t, err)
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

// fire are the alerts whose comparison the faults of TestDashboards make true.
var fire = []string{
	"HoldfastHoldLost", "HoldfastInDoubt", "HoldfastRenewalsFail", "HoldfastAcquiresFail", "HoldfastEventsDropped",
	"HoldfastMemberDown", "HoldfastNoLeader",
}

// TestDashboards: every query of the alerts and of the dashboards finds something in a cell that has load, and of which
// first one member dies and then the majority, and in a program with locks in a Redis server that is silent for a
// while and then dies. What the program's dashboard shows is more than 0 at some time.
func TestDashboards(t *testing.T) {
	wanted := map[string]string{}
	for name, expr := range queries(t, programs) {
		wanted[name] = expr + " > 0"
	}
	maps.Copy(wanted, queries(t, cells))
	maps.Copy(wanted, alerts(t, cells))
	maps.Copy(wanted, alerts(t, programs))
	for _, name := range fire {
		wanted[name+" fires"] = fmt.Sprintf("ALERTS{alertname=%q}", name) // pending, if it must last
	}
	cell := testserver.StartCell(t, testserver.CellOptions{Members: 3})
	redis := testserver.StartRedis(t, testserver.RedisOptions{})
	prometheus := startPrometheus(t, map[string]string{cells: cell.Addrs(), programs: startProgram(t, "redis://"+redis.Addr)})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	clients := load(ctx, t, cell.Addrs())
	for _, stage := range []struct {
		fault func()
		lasts time.Duration
	}{
		{func() {}, 4 * time.Second}, {redis.Pause, silent}, {redis.Resume, 6 * time.Second},
		{redis.Kill, 0}, {cell.Members[0].Kill, 2 * time.Second}, {cell.Members[1].Kill, time.Minute},
	} {
		stage.fault()
		for end := time.Now().Add(stage.lasts); len(wanted) > 0 && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
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
	stop()
	clients.Wait()
}

// startPrometheus starts Prometheus, which looks at the targets of each job, host:port, every half a second, and ends
// with the test. It has the alerts of packaging/.
func startPrometheus(t *testing.T, jobs map[string]string) (addr string) {
	t.Helper()
	rules, err := filepath.Abs(packaging + "/prometheus/*.rules.yml")
	testserver.Must(t, err)
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
	testserver.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testserver.Must(t, err)
	var said struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Status != "success" {
		t.Fatalf("%s: %s, %v", query, body, err)
	}
	return len(said.Data.Result)
}
