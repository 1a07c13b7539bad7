package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// world is a store in memory, and a browser of a console that shows it.
type world struct {
	t       *testing.T
	store   *memlock.Store
	locks   *holdfast.Client
	driver  driver.Driver
	console *Console
	site    *httptest.Server
	browser *http.Client
}

// newWorld makes one whose console reads the store as often as it can.
func newWorld(t *testing.T, token string, edit func(*Store)) *world {
	t.Helper()
	store := memlock.NewStore(nil)
	w := &world{t: t, store: store, driver: store.Client()}
	w.locks = must(holdfast.New(w.driver, nil))
	t.Cleanup(func() { w.locks.Close() })
	s := Store{Name: "mem://test", List: w.locks.List, Break: w.locks.Break}
	if edit != nil {
		edit(&s)
	}
	w.console = New(t.Context(), s)
	w.console.feeds[0].pace = time.Millisecond
	w.site = httptest.NewServer(Guard(w.console, token))
	t.Cleanup(w.site.Close)
	jar, _ := cookiejar.New(nil)
	w.browser = &http.Client{Jar: jar}
	return w
}

// hold holds a name until the test ends.
func (w *world) hold(name, note string) *holdfast.Lease {
	return must(w.locks.Mutex(name, &holdfast.Options{Note: note}).Acquire(w.t.Context()))
}

// do makes a request, and returns the answer's status, text and header.
func (w *world) do(r *http.Request) (int, string, http.Header) {
	resp := must(w.browser.Do(r))
	defer resp.Body.Close()
	return resp.StatusCode, string(must(io.ReadAll(resp.Body))), resp.Header
}

func (w *world) get(path string) (int, string, http.Header) {
	return w.do(must(http.NewRequestWithContext(w.t.Context(), "GET", w.site.URL+path, nil)))
}

// shows expects texts on a page, and others not.
func (w *world) shows(path string, texts, not []string) {
	w.t.Helper()
	status, page, _ := w.get(path)
	if status != http.StatusOK {
		w.t.Fatalf("%s: status %d\n%s", path, status, page)
	}
	for _, text := range texts {
		if !strings.Contains(page, text) {
			w.t.Errorf("%s does not show %q:\n%s", path, text, page)
		}
	}
	for _, text := range not {
		if strings.Contains(page, text) {
			w.t.Errorf("%s shows %q", path, text)
		}
	}
}

// await gets a page until it shows a text.
func (w *world) await(path, text string) string {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		_, page, _ := w.get(path)
		if strings.Contains(page, text) {
			return page
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s never shows %q:\n%s", path, text, page)
		}
	}
}

// post sends a form as a page of an origin does.
func (w *world) post(path, origin string, form url.Values) (int, string) {
	r := must(http.NewRequestWithContext(w.t.Context(), "POST", w.site.URL+path, strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", origin)
	status, page, _ := w.do(r)
	return status, page
}

var secretOf = regexp.MustCompile(`name="secret" value="([^"]+)"`)

// TestPage: a name is there with its holder's host, process and program, its token, and its waiters in order; names and
// notes are text, whatever is in them; and the page may load nothing from elsewhere.
func TestPage(t *testing.T) {
	w := newWorld(t, "", nil)
	lease := w.hold("orders/42", "backup on db-1, pid 4711")
	w.hold(`x"><script>alert(1)</script>`, "<img src=x onerror=alert(2)>\u202e\x1b")
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		other := must(holdfast.New(w.store.Client(), nil))
		defer other.Close()
		go other.Mutex("orders/42", &holdfast.Options{Note: fmt.Sprintf("waiter %d", i)}).Acquire(ctx)
		w.await("/", fmt.Sprintf("waiter %d", i))
	}
	w.shows("/", []string{"orders/42", "<bdi>backup</bdi>", "<bdi>db-1</bdi>", ">4711<", fmt.Sprint(lease.Token()), "waits, 1", "waits, 2", "Break…",
		"&lt;script&gt;", `&lt;img src=x onerror=alert(2)&gt;\u202e\x1b`}, []string{"<script>alert", "<img src=x", "\u202e", "not renewed"})
	_, page, header := w.get("/")
	if strings.Index(page, "waiter 0") > strings.Index(page, "waiter 1") {
		t.Error("the waiters are out of order")
	}
	if csp := header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'self'; script-src 'self';") || strings.Contains(csp, "unsafe") {
		t.Errorf("the policy is %q", csp)
	}
	info, err := w.locks.Inspect(t.Context(), "orders/42")
	if err != nil || strings.Contains(page, info.Holders[0].Owner) {
		t.Errorf("the page shows an owner, by whom anybody could release the hold; %v", err)
	}
	for _, asset := range []string{"style.css", "live.js", "icon.svg"} {
		w.shows("/console/"+asset, nil, nil)
	}
	for path, want := range map[string]int{"/?store=1": 404, "/?store=x": 404, "/?q=" + strings.Repeat("x", 1025): 400, "/console/break?token=x": 400,
		"/console/doctor": 404, "/console/nothing": 404, "/nothing": 404} {
		if status, _, _ := w.get(path); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
}

// TestSearchAndPages: the server searches names and notes, and shows a hundred names on a page.
func TestSearchAndPages(t *testing.T) {
	w := newWorld(t, "", nil)
	for i := range 250 {
		w.hold(fmt.Sprintf("jobs/%03d", i), fmt.Sprintf("worker on host-%d, pid 1", i%10))
	}
	w.shows("/", []string{"jobs/000", "jobs/099", "1 to 100 of 250", `href="/?page=2"`}, []string{"jobs/100"})
	w.shows("/?page=3", []string{"jobs/200", "jobs/249", "201 to 250 of 250", "Previous"}, []string{"jobs/199", ">Next<"})
	w.shows("/?page=9", []string{"201 to 250 of 250"}, nil)
	w.shows("/?q=HOST-7", []string{"jobs/007", "jobs/247", "of 250 found"}, []string{"jobs/008"})
	w.shows("/?q=/24", []string{"jobs/240", "jobs/249"}, []string{"jobs/239"})
	w.shows("/?q=nothing", []string{"No name or note has"}, []string{"jobs/"})
}

// TestBreak: a hold is broken by the token that the page shows, once, by a form of this console only, and stands among the
// broken ones then.
func TestBreak(t *testing.T) {
	w := newWorld(t, "", nil)
	lease := w.hold("deploy", "")
	token := fmt.Sprint(lease.Token())
	path := "/console/break?name=deploy"
	_, page, _ := w.get(path + "&token=" + token)
	secret := secretOf.FindStringSubmatch(page)
	if secret == nil {
		t.Fatalf("there is no form:\n%s", page)
	}
	form := url.Values{"secret": {secret[1]}, "token": {token}}
	for what, try := range map[string]func() (int, string){
		"another origin": func() (int, string) { return w.post(path, "http://evil.example", form) },
		"another secret": func() (int, string) { return w.post(path, w.site.URL, url.Values{"secret": {"x"}, "token": {token}}) },
		"no secret":      func() (int, string) { return w.post(path, w.site.URL, url.Values{"token": {token}}) },
		"another token": func() (int, string) {
			return w.post(path, w.site.URL, url.Values{"secret": form["secret"], "token": {"7"}})
		},
		"no token at all": func() (int, string) { return w.post(path, w.site.URL, url.Values{"secret": form["secret"]}) },
	} {
		if status, page := try(); status < 400 || lease.Err() != nil {
			t.Errorf("%s: status %d, the lease: %v\n%s", what, status, lease.Err(), page)
		}
	}
	if status, page := w.post(path, w.site.URL, form); status != http.StatusOK || !strings.Contains(page, "broken by this console") || strings.Contains(page, ">Break…<") {
		t.Errorf("status %d\n%s", status, page)
	}
	<-lease.Done()
	if status, page := w.post(path, w.site.URL, form); status != http.StatusConflict || !strings.Contains(page, "nothing was broken") {
		t.Errorf("once more: status %d\n%s", status, page)
	}
	if status, _, _ := w.get(path + "&token=" + token); status != http.StatusConflict {
		t.Errorf("the page of a hold that is gone: status %d", status)
	}
}

// TestReadOnly: a console that may not break has no button, and refuses the form.
func TestReadOnly(t *testing.T) {
	w := newWorld(t, "", func(s *Store) { s.Break = nil })
	lease := w.hold("deploy", "")
	w.shows("/", []string{"deploy"}, []string{"Break"})
	form := url.Values{"secret": {w.console.secret}, "token": {fmt.Sprint(lease.Token())}}
	if status, _ := w.post("/console/break?name=deploy", w.site.URL, form); status != http.StatusForbidden || lease.Err() != nil {
		t.Errorf("status %d, the lease: %v", status, lease.Err())
	}
	if status, _, _ := w.get("/console/break?name=deploy&token=" + form.Get("token")); status != http.StatusForbidden {
		t.Errorf("the page: status %d", status)
	}
}

// TestGuard: without a token only a name of this host is answered. With one a browser that has not logged in sees nothing.
func TestGuard(t *testing.T) {
	w := newWorld(t, "", nil)
	w.hold("deploy", "")
	r, _ := http.NewRequestWithContext(t.Context(), "GET", w.site.URL+"/", nil)
	r.Host = "evil.example"
	if status, page, _ := w.do(r); status != http.StatusMisdirectedRequest || strings.Contains(page, "deploy") {
		t.Errorf("by another name: status %d", status)
	}
	const token = "correct horse battery"
	w = newWorld(t, token, nil)
	w.hold("deploy", "")
	for _, path := range []string{"/", "/console/live", "/console/break?name=deploy&token=1"} {
		if status, page, _ := w.get(path); status != http.StatusUnauthorized || strings.Contains(page, "deploy") {
			t.Errorf("%s by nobody: status %d", path, status)
		}
	}
	w.shows("/console/style.css", nil, nil)
	for _, try := range []struct{ origin, token string }{{w.site.URL, ""}, {w.site.URL, "wrong"}, {"http://evil.example", token}} {
		if status, page := w.post("/console/login", try.origin, url.Values{"token": {try.token}}); status != http.StatusForbidden || strings.Contains(page, "deploy") {
			t.Errorf("%v: status %d", try, status)
		}
	}
	w.browser.Jar.SetCookies(must(url.Parse(w.site.URL)), []*http.Cookie{{Name: cookie, Value: "x"}})
	if status, _, _ := w.get("/"); status != http.StatusUnauthorized {
		t.Errorf("another cookie: status %d", status)
	}
	if status, page := w.post("/console/login", w.site.URL, url.Values{"token": {token + "\n"}}); status != http.StatusOK || !strings.Contains(page, "deploy") {
		t.Errorf("the token: status %d\n%s", status, page)
	}
	w.shows("/", []string{"deploy"}, nil)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
