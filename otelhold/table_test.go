package otelhold_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
)

// TestTable: the tables of doc.go and of docs/observability.md have the instruments that there are, with
// their kinds, units and attributes, and no others.
func TestTable(t *testing.T) {
	var blocked chan struct{} // made in the bubble of virtual time
	c := &holdfast.ClientOptions{Events: holdfast.Events{Waiting: func(holdfast.Event) { <-blocked }}}
	inRig(t, c, nil, func(r *rig) {
		blocked = make(chan struct{})
		everything(r, blocked)
		_, have := collect(r, r.reader)
		for file, row := range map[string]*regexp.Regexp{
			"doc.go":                   regexp.MustCompile(`(?m)^//\t(holdfast\.\S+) +(histogram|counter|updowncounter) +(\S+) +(\S.*?)  +\S.*$`),
			"../docs/observability.md": regexp.MustCompile("(?m)^\\| `(holdfast\\.\\S+)` \\| (\\w+) \\| (\\S+) \\| (.*?) \\| .* \\|$"),
		} {
			text, err := os.ReadFile(file)
			if err != nil {
				r.Fatal(err)
			}
			said := map[string]bool{}
			for _, m := range row.FindAllStringSubmatch(string(text), -1) {
				name, keys := m[1], regexp.MustCompile(`[a-z]+(?:\.[a-z]+)+`).FindAllString(m[4], -1)
				said[name] = true
				in := have[name]
				if in == nil {
					r.Errorf("%s: nothing is measured by %s", file, name)
					continue
				}
				if in.kind != m[2] || in.unit != m[3] {
					r.Errorf("%s: %s is a %s in %s, not a %s in %s", file, name, in.kind, in.unit, m[2], m[3])
				}
				var has []string
				for key := range in.keys {
					has = append(has, key)
				}
				slices.Sort(has)
				slices.Sort(keys)
				if !slices.Equal(has, keys) {
					r.Errorf("%s: %s has the attributes %v, not %v", file, name, has, keys)
				}
			}
			for name := range have {
				if !said[name] {
					r.Errorf("%s does not name %s", file, name)
				}
			}
		}
	})
}

// everything lets each instrument measure with each of its attributes. A hook of the user blocks until
// blocked is closed.
func everything(r *rig, blocked chan struct{}) {
	options := &holdfast.Options{TTL: 9 * time.Second, RenewEvery: 3 * time.Second, MaxHold: time.Minute}
	theirs := r.stranger()
	defer theirs.Close()
	held := r.acquire(r.Context(), theirs.Mutex("held", nil))
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if _, err := r.Mutex("held", nil).Acquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
		r.Error(err)
	}
	for range 8_500 { // while the hook blocks: more events than the client keeps
		r.release(r.acquire(r.Context(), r.Mutex("x", nil)))
	}
	close(blocked)
	synctest.Wait()
	r.release(held)

	lease := r.acquire(r.Context(), r.Mutex("x", options))
	r.driver.silent.Store(true)
	time.Sleep(3500 * time.Millisecond)
	r.driver.silent.Store(false)
	<-lease.Done()
	gone := r.acquire(r.Context(), r.Mutex("x", options))
	if err := r.Break(r.Context(), "x", gone.Token()); err != nil {
		r.Error(err)
	}
	if err := gone.Release(); !errors.Is(err, holdfast.ErrLost) {
		r.Error(err)
	}
	r.driver.failRelease.Store(true)
	late := r.acquire(r.Context(), r.Mutex("x", options))
	if err := late.Release(); !errors.Is(err, holdfast.ErrUncertain) {
		r.Error(err)
	}
	r.driver.failRelease.Store(false)
	synctest.Wait()
}

// TestNoNames: names, owners, tokens, notes and the texts of errors are in no attribute, status or event
// of a span.
func TestNoNames(t *testing.T) {
	inRig(t, &holdfast.ClientOptions{Prefix: "secretprefix/"}, nil, func(r *rig) {
		options := &holdfast.Options{Note: "secretnote", TTL: 9 * time.Second}
		lease := r.acquire(r.Context(), r.Mutex("secretname", options))
		_, _ = r.Mutex("secretname", options).TryAcquire(r.Context())
		token := lease.Grant().Owner
		r.driver.silent.Store(true)
		<-lease.Done()
		synctest.Wait()
		var text strings.Builder
		values, _ := collect(r, r.reader)
		for k := range values {
			text.WriteString(k + "\n")
		}
		for _, s := range r.spans.Ended() {
			text.WriteString(s.Name() + attributesOf(s) + s.Status().Description + "\n")
			for _, e := range s.Events() {
				text.WriteString(e.Name + "\n")
				if len(e.Attributes) > 0 {
					r.Errorf("the event %s has attributes", e.Name)
				}
			}
		}
		if !strings.Contains(text.String(), "expired") {
			r.Errorf("no loss was measured:\n%s", &text)
		}
		for _, secret := range []string{"secret", "silent", token} {
			if strings.Contains(text.String(), secret) {
				r.Errorf("%q is in what is measured:\n%s", secret, &text)
			}
		}
	})
}
