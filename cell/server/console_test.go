package server

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// consoleAs asks for a page of the console, by a token, if that is not "".
func consoleAs(t *testing.T, m *Member, method, path, host, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Host = host; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestConsole: a member shows the locks at "/", and breaks none. Where it asks who calls, it shows them to those only who
// administer the cell.
func TestConsole(t *testing.T) {
	m := start(t)
	a := dial(m)
	a.take(t, a.open(t, 10*time.Minute), "orders/42", func(r *cellv1.AcquireRequest) { r.Note = "report on db-1, pid 7" })
	status, page := consoleAs(t, m, "GET", "/", "", "")
	for _, text := range []string{"orders/42", "<bdi>report</bdi>", "<bdi>db-1</bdi>", "Lost and broken"} {
		if !strings.Contains(page, text) {
			t.Errorf("status %d; %q is not in\n%s", status, text, page)
		}
	}
	if strings.Contains(page, "Break") || strings.Contains(page, "Doctor") {
		t.Error("the page offers what it cannot do")
	}
	if status, _ := consoleAs(t, m, "GET", "/", "evil.example", ""); status != http.StatusMisdirectedRequest {
		t.Errorf("by a name that is not of this host: status %d", status)
	}

	p := newPeople(t)
	reader, admin := p.add(t, "reader", grant{"", toWrite}), p.add(t, "admin", grant{"", toAdminister})
	m = startWith(t, func(c *Config) { c.Principals = p.file })
	for _, path := range []string{"/", "/console/live", "/console/style.css", "/console/break?name=x&token=1", "/console/doctor"} {
		for token, may := range map[string]bool{"": false, "nobody's": false, reader: false, admin: true} {
			status, page := consoleAs(t, m, "GET", path, "", token)
			if refused := status == http.StatusUnauthorized || strings.Contains(page, "REASON_FORBIDDEN"); refused == may {
				t.Errorf("%s: status %d for somebody who may: %v\n%s", path, status, may, page)
			}
		}
	}
	if status, page := consoleAs(t, m, "POST", "/console/break?"+url.Values{"name": {"x"}}.Encode(), "", admin); status != http.StatusForbidden {
		t.Errorf("a break: status %d\n%s", status, page)
	}
	if status, _ := consoleAs(t, m, "GET", "/nothing", "", admin); status != http.StatusNotFound {
		t.Errorf("no such page: status %d", status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range m.front.list(ctx, "") {
		if err == nil {
			t.Error("a list whose caller has gone shows something")
		}
	}
}
