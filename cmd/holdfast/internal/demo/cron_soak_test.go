//go:build soak

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestCron: with a plain lock the job runs more than once at some ticks, and
// with a min-hold once at each.
func TestCron(t *testing.T) {
	dir := ownTempDir(t)
	var out, progress bytes.Buffer
	err := Cron(t.Context(), CronOptions{JSON: true, Out: &out, Progress: &progress, Ticks: 3, Tick: 1500 * time.Millisecond, Skew: 150 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var results []CronResult
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", results)
	if len(results) != 2 || results[0].Strategy != "plain" || results[1].Strategy != "min-hold" {
		t.Fatalf("results are %+v", results)
	}
	for _, r := range results {
		if r.Replicas != 3 || r.Ticks != 3 || r.Once+r.Twice+r.Missed != 3 || r.Missed != 0 {
			t.Errorf("%+v", r)
		}
	}
	if plain := results[0]; plain.Twice == 0 || plain.Runs <= 3 {
		t.Errorf("plain: %+v, want ticks at which the job ran more than once", plain)
	}
	if held := results[1]; held.Once != 3 || held.Runs != 3 {
		t.Errorf("min-hold: %+v, want one run at each tick", held)
	}
	const want = "missed once replicas runs seconds strategy ticks twice what"
	for _, got := range keys(t, out.Bytes()) {
		if got != want {
			t.Errorf("keys are %s, want %s", got, want)
		}
	}
	if lines := strings.Count(progress.String(), "\n"); lines != 2 {
		t.Errorf("progress is %q", progress.String())
	}
	expectNothingLeft(t, dir)
}

func TestCronCancel(t *testing.T) {
	dir := ownTempDir(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(400*time.Millisecond, func() { cancel(cause) })
	defer timer.Stop()
	if err := Cron(ctx, CronOptions{Ticks: 1000}); !errors.Is(err, cause) {
		t.Errorf("the error is %v, want %v", err, cause)
	}
	expectNothingLeft(t, dir)
}
