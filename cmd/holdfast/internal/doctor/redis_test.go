package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// password is that of every server here: no finding may show it.
const password = "s3cr3t-" + "word"

// examine returns the findings for a store, by check.
func examine(t *testing.T, rawURL string) map[string]Finding {
	t.Helper()
	return examineWithin(t, rawURL, time.Minute)
}

// examineWithin is examine with a limit for opening the store.
func examineWithin(t *testing.T, rawURL string, within time.Duration) map[string]Finding {
	t.Helper()
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p := Patient{URL: u}
	opening, opened := context.WithTimeout(t.Context(), within)
	defer opened()
	if p.Client, p.Err = holdfast.Open(opening, rawURL); p.Err == nil {
		defer p.Client.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := map[string]Finding{}
	for _, f := range Examine(ctx, p) {
		if f.Found == "" || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("a finding that is not ok has a risk and a remedy, others have not: %+v", f)
		}
		if strings.Contains(fmt.Sprint(f), password) {
			t.Errorf("a password is shown: %+v", f)
		}
		if _, twice := found[f.Check]; twice {
			t.Errorf("two findings of %s", f.Check)
		}
		found[f.Check] = f
	}
	return found
}

// want is what a check is to find.
type want struct {
	check    string
	severity Severity
	says     string
}

func expect(t *testing.T, found map[string]Finding, wants ...want) {
	t.Helper()
	for _, w := range wants {
		if f := found[w.check]; f.Severity != w.severity || !strings.Contains(f.Found, w.says) {
			t.Errorf("%s: %+v, want %s and %q", w.check, f, w.severity, w.says)
		}
	}
}
