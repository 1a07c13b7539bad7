package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// sequencer is the header's text.
func sequencer(name string, mode driver.Mode, token driver.Token) string {
	return driver.Sequencer{Name: name, Mode: mode, Token: token}.String()
}

// serve sends a request with the headers to h and returns the answer.
func serve(t *testing.T, h http.Handler, method string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/orders/42", nil)
	for _, value := range headers {
		r.Header.Add(Header, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// echo answers 200 with the sequencer that the handler admitted.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	s, ok := FromContext(r.Context())
	if !ok {
		fmt.Fprint(w, "none")
		return
	}
	fmt.Fprint(w, s)
})

// TestHandlerStatus: the status of each refusal. Which refusal it is decides Guard, see TestGuard.
func TestHandlerStatus(t *testing.T) {
	ofPath := func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }
	x42 := sequencer("orders/42", exclusive, 42)
	for _, c := range []struct {
		name    string
		options *HandlerOptions
		method  string
		headers []string
		status  int
		says    string
	}{
		{"admitted", nil, "PUT", []string{x42}, 200, x42},
		{"no header", nil, "GET", nil, 428, Header},
		{"no header, optional", &HandlerOptions{Optional: true}, "PUT", nil, 200, "none"},
		{"empty, optional", &HandlerOptions{Optional: true}, "PUT", []string{""}, 400, "malformed"},
		{"twice", nil, "PUT", []string{x42, x42}, 400, "once"},
		{"semaphore", nil, "PUT", []string{sequencer("orders/42", driver.Slot, 42)}, 400, "semaphore"},
		{"another lock", &HandlerOptions{Name: ofPath}, "PUT", []string{sequencer("orders/43", exclusive, 42)}, 403, `"orders/42"`},
		{"no lock will do", &HandlerOptions{Name: func(*http.Request) string { return "" }}, "PUT", []string{x42}, 403, "needs the lock"},
		{"shared read", nil, "GET", []string{sequencer("orders/42", shared, 42)}, 200, "hf1:s:42:"},
		{"shared write", nil, "POST", []string{sequencer("orders/42", shared, 42)}, 403, "exclusive"},
		{"shared write that reads", &HandlerOptions{Reads: func(*http.Request) bool { return true }}, "POST",
			[]string{sequencer("orders/42", shared, 42)}, 200, "hf1:s:42:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := serve(t, Handler(echo, c.options), c.method, c.headers...)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%d %s; want %d with %q", w.Code, w.Body, c.status, c.says)
			}
		})
	}
}

// TestHandlerCheck: what would raise a mark is checked first, once; what the
// check refuses leaves no mark and no gate.
func TestHandlerCheck(t *testing.T) {
	var answer error
	var asked []string
	var gates Gates
	h := Handler(echo, &HandlerOptions{Gates: &gates, Check: func(_ context.Context, s string) error {
		asked = append(asked, s)
		return answer
	}})
	forged := sequencer("a", exclusive, 1<<53-1)
	for i, step := range []struct {
		header string
		answer error
		asks   bool
		status int
	}{
		{forged, driver.ErrNotHeld, true, 409},
		{forged, errors.New("dial 10.0.0.7: refused"), true, 503},
		{sequencer("a", exclusive, 5), nil, true, 200},
		{sequencer("a", exclusive, 5), nil, false, 200},
		{sequencer("a", exclusive, 4), nil, false, 409},
		{sequencer("a", exclusive, 6), fmt.Errorf("check: %w", driver.ErrBroken), true, 409},
		{sequencer("a", exclusive, 5), nil, false, 200},
		{sequencer("a", shared, 8), nil, true, 200},
		{sequencer("a", shared, 7), nil, false, 200},
	} {
		asked, answer = nil, step.answer
		w := serve(t, h, "GET", step.header)
		if w.Code != step.status {
			t.Errorf("step %d: %d %s, want %d", i, w.Code, w.Body, step.status)
		}
		if step.asks != (len(asked) == 1) || step.asks && asked[0] != step.header {
			t.Errorf("step %d: asked about %q", i, asked)
		}
		if strings.Contains(w.Body.String(), "10.0.0.7") {
			t.Errorf("step %d: the store's error was told to the client: %s", i, w.Body)
		}
		if i == 1 && len(gates.recent) != 0 {
			t.Error("a forged sequencer left a gate behind")
		}
	}
}

// TestHandlerGates: work behind the door is made exact by the same gates.
func TestHandlerGates(t *testing.T) {
	var gates Gates
	var h http.Handler
	h = Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, _ := FromContext(r.Context())
		if s.Token == 1 { // while it is at work, a newer holder comes
			if answer := serve(t, h, "PUT", sequencer("a", exclusive, 2)); answer.Code != 200 {
				t.Errorf("the newer holder: %d %s", answer.Code, answer.Body)
			}
		}
		err := gates.Do(s.Name, s.Token, s.Mode, func() error { return nil })
		if errors.Is(err, ErrStale) != (s.Token == 1) {
			t.Errorf("the last step of token %d: %v", s.Token, err)
		}
	}), &HandlerOptions{Gates: &gates})
	if w := serve(t, h, "PUT", sequencer("a", exclusive, 1)); w.Code != 200 {
		t.Errorf("the older holder at the door: %d %s", w.Code, w.Body)
	}
}
