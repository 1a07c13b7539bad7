//go:build soak

package demo

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
	_ "github.com/holdfastlock/holdfast/redislock/rueidisconn" // redis://
)

// TestRedis runs both demonstrations with their locks in a Redis server: what is
// right stays right, and a stale write is refused by a token of its clock.
func TestRedis(t *testing.T) {
	const password = "s3cr3t"
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--requirepass", password}})
	store := "redis://:" + password + "@" + server.Addr
	dir := ownTempDir(t)
	var out, cron, progress bytes.Buffer
	err := Run(t.Context(), Options{Store: store, JSON: true, Out: &out, Progress: &progress, Repeats: 1, Strategies: []string{"lock", "paused-fenced"}})
	if err != nil {
		t.Fatal(err)
	}
	var results []Result
	if err := json.Unmarshal(out.Bytes(), &results); err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Runs != 1 || r.Oversold != 0 || r.UserViolations != 0 || r.Sold != r.Stock || (r.StaleRefused > 0) != (r.Strategy == "paused-fenced") {
			t.Errorf("%+v", r)
		}
	}
	if err := Cron(t.Context(), CronOptions{Store: store, JSON: true, Out: &cron, Progress: &progress, Ticks: 3, Tick: 900 * time.Millisecond, Skew: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	var jobs []CronResult
	if err := json.Unmarshal(cron.Bytes(), &jobs); err != nil || len(jobs) != 2 {
		t.Fatalf("%d results, %v", len(jobs), err)
	}
	if plain, held := jobs[0], jobs[1]; plain.Twice == 0 || held.Once != 3 || held.Runs != 3 {
		t.Errorf("plain %+v, min-hold %+v", plain, held)
	}
	if strings.Contains(out.String()+cron.String()+progress.String(), password) {
		t.Error("the password is shown")
	}

	server.Stop()
	err = Run(t.Context(), Options{Store: store})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), password) {
		t.Errorf("without the server: %v", err)
	}
	expectNothingLeft(t, dir)
}
