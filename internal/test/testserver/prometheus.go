package testserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const prometheusPackage = "prometheus"

// Prometheus is a private server of one test. Its methods end the test on failure.
type Prometheus struct {
	*process
	Addr string
}

// StartPrometheus starts Prometheus, which looks at the targets of each job, host:port, every half a second, and
// ends with the test. Rules is a file.
func StartPrometheus(t testing.TB, rules string, jobs map[string][]string) *Prometheus {
	t.Helper()
	program := Need(t, "prometheus", prometheusPackage)
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
`, rules)
	for job, targets := range jobs {
		config += fmt.Sprintf("- {job_name: %q, static_configs: [{targets: [\"%s\"]}]}\n", job, strings.Join(targets, `", "`))
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Prometheus{process: &process{t: t, ready: "Server is ready"}}
	p.Addr = p.serve(func(port string) []string {
		return []string{program, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:" + port}
	})
	return p
}

// Query returns how many series a query has now.
func (p *Prometheus) Query(query string) int {
	p.t.Helper()
	resp, err := http.Get("http://" + p.Addr + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var said struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Status != "success" {
		p.t.Fatalf("%s: %s, %v", query, body, err)
	}
	return len(said.Data.Result)
}
