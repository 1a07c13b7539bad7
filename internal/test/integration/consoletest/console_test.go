//go:build soak && linux

package consoletest

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/console"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/memlock"

	_ "github.com/holdfastlock/holdfast/etcdlock"
	_ "github.com/holdfastlock/holdfast/redislock"
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"
)

var update = flag.Bool("update", false, "make docs/console.png")

// soon is how long a change may take until the page shows it.
const soon = 2 * time.Second

func inTime(t *testing.T, what string, took time.Duration) {
	t.Helper()
	if t.Logf("%s after %v", what, took); took > soon {
		t.Errorf("%s only after %v", what, took)
	}
}

// world is a console over a store, a client of the store, and a browser that looks.
type world struct {
	t       *testing.T
	browser context.Context
	locks   *holdfast.Client
	site    string
}

// newWorld opens the console's page.
func newWorld(t *testing.T, name string, locks *holdfast.Client) *world {
	t.Helper()
	t.Cleanup(func() { locks.Close() })
	w := &world{t: t, locks: locks}
	life, end := context.WithCancel(context.Background())
	c := console.New(life, console.Store{
		Name: name, List: locks.List, Break: locks.Break,
		Doctor: func(context.Context) (list []console.Finding) {
			for _, severity := range []string{"ok", "note", "warning", "error"} {
				list = append(list, console.Finding{Check: "disk", Severity: severity, Found: "it is full", Risk: "no lock can be taken", Remedy: "buy a larger one"})
			}
			return list
		},
	})
	site := httptest.NewServer(console.Guard(c, ""))
	t.Cleanup(site.Close)
	t.Cleanup(end)
	w.site = site.URL
	w.browser = startBrowser(t, w.site)
	w.do(chromedp.EmulateViewport(1240, 800), chromedp.Navigate(w.site))
	return w
}

// await waits until an expression is true, also of the page that comes next, and returns how long that has taken since a time.
func (w *world) await(since time.Time, expression string) time.Duration {
	w.t.Helper()
	for {
		is, err := chromedp.Run(w.browser, chromedp.Evaluate[bool](expression))
		if is {
			return time.Since(since)
		}
		if w.browser.Err() != nil || time.Since(since) > time.Minute {
			page, _ := chromedp.Run(w.browser, chromedp.Evaluate[string]("document.body.innerText"))
			w.t.Fatalf("never: %s: %v\n%s", expression, err, page)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// shows waits until the page shows a text, or, with not, does not.
func (w *world) shows(since time.Time, text string, not ...bool) time.Duration {
	w.t.Helper()
	return w.await(since, fmt.Sprintf("document.body.innerText.includes(%q) === %v", text, len(not) == 0))
}

// focused returns what has the focus: its text, its name or what it says of itself.
func (w *world) focused() string {
	w.t.Helper()
	return strings.TrimSpace(eval[string](w, "(e => e.ariaLabel || e.innerText || e.name || e.nodeName)(document.activeElement)"))
}

// hold holds a name until the test ends.
func hold(t *testing.T, locks *holdfast.Client, name, note string) *holdfast.Lease {
	t.Helper()
	lease, err := locks.Mutex(name, &holdfast.Options{Note: note}).Acquire(t.Context())
	testserver.Must(t, err)
	return lease
}

// TestLive: in a browser a lock appears, waits and is broken, each within two seconds, on three stores; and the keyboard
// suffices.
func TestLive(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"redis": func(t *testing.T) string {
			return "redis://" + testserver.StartRedis(t, testserver.RedisOptions{}).Addr + "?hf.forget=go"
		},
		"postgres": func(t *testing.T) string { return testserver.StartPostgres(t).URL("postgres") },
		"etcd": func(t *testing.T) string {
			return "etcd://" + testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			open := func() *holdfast.Client {
				c, err := holdfast.Open(t.Context(), url)
				testserver.Must(t, err)
				t.Cleanup(func() { c.Close() })
				return c
			}
			locks, other := open(), open()
			w := newWorld(t, name, locks)
			w.shows(time.Now(), "No locks are in use")
			lease := hold(t, locks, "deploy/shop", "deploy on ci-7, pid 4711")
			inTime(t, "the lock is shown", w.shows(time.Now(), "deploy/shop"))
			w.shows(time.Now(), "ci-7")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			acquired := make(chan *holdfast.Lease, 1)
			go func() {
				if l, err := other.Mutex("deploy/shop", &holdfast.Options{Note: "deploy on ci-8, pid 12"}).Acquire(ctx); err == nil {
					acquired <- l
				}
			}()
			begun := time.Now()
			for info := (holdfast.Info{}); len(info.Waiters) == 0; info, _ = locks.Inspect(ctx, "deploy/shop") {
				begun = time.Now()
			}
			inTime(t, "the waiter is shown", w.shows(begun, "waits, 1"))
			w.tabTo("Break the hold of deploy on deploy/shop")
			w.do(chromedp.KeyEvent(kb.Enter))
			w.shows(time.Now(), "Break this hold?")
			w.tabTo(fmt.Sprintf("Break the hold with token %d", lease.Token()))
			begun = time.Now()
			w.do(chromedp.KeyEvent(kb.Enter))
			inTime(t, "the break is shown", w.shows(begun, "broken by this console"))
			inTime(t, "the next holder is shown", w.await(begun, "document.querySelector('.names .holds') !== null && document.querySelector('.names .waits') === null"))
			select {
			case <-lease.Done():
			case <-time.After(time.Minute):
				t.Error("the holder is not told")
			}
			l := <-acquired
			begun = time.Now()
			testserver.Must(t, l.Release())
			inTime(t, "the release is shown", w.shows(begun, "No locks are in use"))
		})
	}
}

// tabTo presses the tabulator until something has the focus, visibly each time.
func (w *world) tabTo(what string) {
	w.t.Helper()
	var passed []string
	for range 50 {
		w.do(chromedp.KeyEvent(kb.Tab))
		is := w.focused()
		if passed = append(passed, is); eval[string](w, "getComputedStyle(document.activeElement).outlineStyle") != "solid" {
			w.t.Errorf("the focus on %q is not visible", is)
		}
		if is == what {
			return
		}
	}
	w.t.Fatalf("the tabulator never comes to %q: %q", what, passed)
}

// filled returns a client of a store in memory that holds ten thousand names.
func filled(t *testing.T) *holdfast.Client {
	t.Helper()
	store := memlock.NewStore(nil)
	d := store.Client()
	for i := range 10_000 {
		_, err := d.Try(t.Context(), driver.Request{Name: fmt.Sprintf("jobs/%05d", i), Owner: fmt.Sprint(i), TTL: time.Hour, Note: fmt.Sprintf("worker on host-%d, pid %d", i%40, 1000+i)})
		testserver.Must(t, err)
	}
	c, err := holdfast.New(d, nil)
	testserver.Must(t, err)
	return c
}

// TestTenThousand: with ten thousand names a page is a page, a slash goes to the search, which finds while one types, and a
// change shows in time and leaves the focus where it is.
func TestTenThousand(t *testing.T) {
	w := newWorld(t, "mem://", filled(t))
	w.shows(time.Now(), "1 to 100 of 10000")
	if n := eval[int](w, "document.querySelectorAll('.names tbody').length"); n != 100 {
		t.Errorf("%d names on a page", n)
	}
	w.do(chromedp.KeyEvent(kb.Tab))
	if is := w.focused(); is != "Skip to the locks" {
		t.Errorf("the first stop is %q", is)
	}
	_, err := chromedp.Call(w.browser, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"})
	testserver.Must(t, err) // not by KeyEvent, which sends what the key types also if the page has prevented it
	begun := time.Now()
	w.do(chromedp.KeyEvent("jobs/0777"))
	inTime(t, "what was searched for is shown", w.shows(begun, "10 names of 10000 found"))
	if is := w.focused(); is != "Search names and notes" || !strings.HasSuffix(eval[string](w, "location.href"), "?q=jobs%2F0777") {
		t.Errorf("the focus is on %q", is)
	}
	const button = "Break the hold of worker on jobs/07778"
	w.tabTo(button)
	begun = time.Now()
	lease := hold(t, w.locks, "jobs/07777/new", "")
	inTime(t, "one more is shown", w.shows(begun, "jobs/07777/new"))
	lease.Release()
	inTime(t, "its release is shown", w.shows(time.Now(), "jobs/07777/new", false))
	w.await(time.Now(), "(window.began ??= Number(main.dataset.generation)) + 3 < Number(main.dataset.generation)")
	if is := w.focused(); is != button {
		t.Errorf("after updates the focus is on %q", is)
	}
}

// faint returns the texts whose contrast to what is behind them is below 4.5, as WCAG 2 has it for normal text.
const faint = `(() => {
	const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * x + .7152 * y + .0722 * z; };
	const colour = (text) => text.match(/[\d.]+/g).map(Number);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = colour(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; } return [255, 255, 255]; };
	const bad = [];
	for (const e of document.querySelectorAll("body, body *")) {
		if (e.nodeName !== "INPUT" && ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
		const [a, b] = [light(colour(getComputedStyle(e).color)), light(behind(e))];
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.push(e.nodeName + " " + e.className + " " + ratio.toFixed(2) + ": " + e.innerText);
	}
	return bad.join("\n");
})()`

// TestLook: each page can be read in light and in dark, and on a phone nothing is wider than the screen. With -update the
// picture of the README is made.
func TestLook(t *testing.T) {
	store := memlock.NewStore(nil)
	locks, err := holdfast.New(store.Client(), nil)
	testserver.Must(t, err)
	for name, note := range map[string]string{"billing/invoices/2026-11": "invoices on app-1, pid 4711", "cron/cleanup": "cleanup on app-2, pid 377",
		"deploy/shop": "deploy on ci-7, pid 90210", "reports/nightly": "report on app-3, pid 8125"} {
		hold(t, locks, name, note)
	}
	for range 3 {
		_, err := locks.Semaphore("crawl/example.com", 4, &holdfast.Options{Note: "crawler on app-1, pid 980"}).Acquire(t.Context())
		testserver.Must(t, err)
	}
	_, err = store.Client().Try(t.Context(), driver.Request{Name: "import/customers", Owner: "dead", TTL: 50 * time.Second, Note: "import on app-2, pid 611"})
	testserver.Must(t, err)
	for i, note := range []string{"deploy on ci-8, pid 1204", "rollback by Ana, ticket 4182"} {
		waiter, err := holdfast.New(store.Client(), nil)
		testserver.Must(t, err)
		defer waiter.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go waiter.Mutex("deploy/shop", &holdfast.Options{Note: note}).Acquire(ctx)
		for info := (holdfast.Info{}); len(info.Waiters) <= i; info, _ = locks.Inspect(ctx, "deploy/shop") {
		}
	}
	w := newWorld(t, "redis://locks.example.com:6379", locks)
	broken := hold(t, locks, "migrate/orders", "migrate on app-4, pid 52")
	w.shows(time.Now(), "migrate/orders")
	w.do(chromedp.Navigate(fmt.Sprintf("%s/console/break?name=migrate%%2Forders&token=%d", w.site, broken.Token())))
	w.shows(time.Now(), "Break this hold?")
	w.look(t, "break")
	w.do(chromedp.Click(chromedp.CSS("button.danger")))
	w.shows(time.Now(), "broken by this console")
	w.do(chromedp.Navigate(w.site + "/console/doctor"))
	w.do(chromedp.Click(chromedp.CSS("main button")))
	w.shows(time.Now(), "buy a larger one")
	w.look(t, "doctor")
	w.do(chromedp.Navigate(w.site + "/"))
	w.shows(time.Now(), "not renewed")
	w.look(t, "locks")
	if *update {
		w.do(chromedp.EmulateViewport(1240, 640))
		w.picture("../../../../docs/console.png")
	}
}

// look checks how a page looks, and keeps pictures in the directory of HOLDFAST_PICTURES.
func (w *world) look(t *testing.T, page string) {
	t.Helper()
	for _, scheme := range []string{"dark", "light"} {
		_, err := chromedp.Call(w.browser, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		testserver.Must(t, err)
		for _, width := range []int64{360, 1240} {
			w.do(chromedp.EmulateViewport(width, 800))
			if bad := eval[string](w, faint); bad != "" {
				t.Errorf("%s, %s, %d wide: texts are faint:\n%s", page, scheme, width, bad)
			}
			if wide := eval[int64](w, "document.documentElement.scrollWidth"); wide != width {
				t.Errorf("%s, %s: %v wide on a screen of %d", page, scheme, wide, width)
			}
			if dir := os.Getenv("HOLDFAST_PICTURES"); dir != "" {
				w.picture(fmt.Sprintf("%s/%s-%s-%d.png", dir, page, scheme, width))
			}
		}
	}
}

// picture writes a picture of the page.
func (w *world) picture(file string) {
	w.t.Helper()
	png, err := chromedp.Run(w.browser, chromedp.CaptureScreenshot())
	testserver.Must(w.t, err)
	testserver.Must(w.t, os.WriteFile(file, png, 0o644))
}
