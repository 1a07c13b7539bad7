//go:build soak && linux

package consoletest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// startBrowser returns the context of an empty page in a Chromium, which ends with the test. Requests to anybody but the
// site, and all that the browser complains of, are errors.
func startBrowser(t *testing.T, site string) context.Context {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())                             // where chromedp makes the user-data-dir, and Chromium other files
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute) // then a browser that hangs is killed
	t.Cleanup(end)
	ctx, end = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(testserver.Need(t, "chromium", "chromium")),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, site+"/") && url != "about:blank" {
				t.Errorf("the page asks for %s", url)
			}
		case *log.EventEntryAdded:
			t.Errorf("the browser complains: %s %s", e.Entry.Text, e.Entry.URL)
		case *runtime.EventExceptionThrown:
			t.Error(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails})
		}
	}))
	t.Cleanup(end)
	return ctx
}

// do has the browser do something.
func (w *world) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	testserver.Must(w.t, chromedp.Do(w.browser, steps...))
}

// eval returns the value of an expression in the page.
func eval[T any](w *world, expression string) T {
	w.t.Helper()
	v, err := chromedp.Run(w.browser, chromedp.Evaluate[T](expression))
	testserver.Must(w.t, err)
	return v
}
