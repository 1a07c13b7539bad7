//go:build soak && linux

package consoletest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// browser is a page of a Chromium of a test's own, driven by the DevTools protocol over a pipe.
type browser struct {
	t       *testing.T
	to      *os.File
	session string

	mu       sync.Mutex
	answers  map[int]chan message
	requests []string // the addresses that the page has asked for
	logged   []string // by the page: errors, and what its policy forbids
}

// message is one of the protocol.
type message struct {
	ID      int    `json:"id,omitempty"`
	Method  string `json:"method,omitempty"`
	Session string `json:"sessionId,omitempty"`
	Params  any    `json:"params,omitempty"`
	Result  struct {
		TargetID, SessionID, Data string
		Result                    struct{ Value any }
		ExceptionDetails          any
	} `json:"result,omitzero"`
	Error any `json:"error,omitempty"`
}

// startBrowser starts a browser with an empty page, which ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := testserver.Need(t, "chromium", "chromium")
	in, to, err := os.Pipe()
	testserver.Must(t, err)
	from, out, err := os.Pipe()
	testserver.Must(t, err)
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu",
		"--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{in, out} // descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	testserver.Must(t, cmd.Start())
	testserver.Must(t, errors.Join(in.Close(), out.Close()))
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		to.Close()
		from.Close()
	})
	b := &browser{t: t, to: to, answers: map[int]chan message{}}
	go b.receive(bufio.NewReader(from))
	target := b.ask("Target.createTarget", map[string]any{"url": "about:blank"}).Result.TargetID
	b.session = b.ask("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}).Result.SessionID
	for _, domain := range []string{"Page", "Network", "Log", "Runtime"} {
		b.ask(domain+".enable", nil)
	}
	b.size(1240, 800)
	return b
}

// receive takes in what the browser says until it ends.
func (b *browser) receive(from *bufio.Reader) {
	for {
		text, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.t.Errorf("the browser said %.200s: %v", text, err)
			return
		}
		b.mu.Lock()
		event, _ := m.Params.(map[string]any)
		switch m.Method {
		case "":
			b.answers[m.ID] <- m
		case "Network.requestWillBeSent":
			request, _ := event["request"].(map[string]any)
			b.requests = append(b.requests, fmt.Sprint(request["url"]))
		case "Log.entryAdded", "Runtime.exceptionThrown":
			b.logged = append(b.logged, fmt.Sprint(event))
		}
		b.mu.Unlock()
	}
}

// ask makes a call, and returns its answer.
func (b *browser) ask(method string, params any) message {
	b.t.Helper()
	answer := make(chan message, 1)
	b.mu.Lock()
	id := len(b.answers) + 1
	b.answers[id] = answer
	b.mu.Unlock()
	text, err := json.Marshal(message{ID: id, Method: method, Session: b.session, Params: params})
	testserver.Must(b.t, err)
	_, err = b.to.Write(append(text, 0))
	testserver.Must(b.t, err)
	select {
	case m := <-answer:
		if m.Error != nil || m.Result.ExceptionDetails != nil {
			b.t.Fatalf("%s %.300s: %v %v", method, text, m.Error, m.Result.ExceptionDetails)
		}
		return m
	case <-time.After(time.Minute):
		b.t.Fatalf("%s is not answered", method)
		return message{}
	}
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	return b.ask("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}).Result.Result.Value
}

// text returns what the page shows.
func (b *browser) text() string {
	return fmt.Sprint(b.eval("document.body ? document.body.innerText : ''"))
}

// await waits until an expression is true, and returns how long that has taken since a time.
func (b *browser) await(since time.Time, expression string) time.Duration {
	b.t.Helper()
	for b.eval(expression) != true {
		if time.Since(since) > time.Minute {
			b.t.Fatalf("never: %s\n%s", expression, b.text())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(since)
}

// shows waits until the page shows a text, or, with not, does not.
func (b *browser) shows(since time.Time, text string, not ...bool) time.Duration {
	b.t.Helper()
	return b.await(since, fmt.Sprintf("document.body !== null && document.body.innerText.includes(%q) === %v", text, len(not) == 0))
}

// open opens a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.ask("Page.navigate", map[string]any{"url": url})
	b.await(time.Now(), fmt.Sprintf("location.href === %q && document.readyState === 'complete'", url))
}

// press presses a key: "Tab", "Enter", "/".
func (b *browser) press(key string) {
	b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13}
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	switch key {
	case "Tab":
	case "Enter":
		down["text"] = "\r"
	default:
		down["text"] = key
	}
	b.ask("Input.dispatchKeyEvent", down)
	b.ask("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]})
}

// focused returns what has the focus: its text, its name or what it says of itself.
func (b *browser) focused() string {
	b.t.Helper()
	return strings.TrimSpace(fmt.Sprint(b.eval("(e => e.ariaLabel || e.innerText || e.name || e.nodeName)(document.activeElement)")))
}

// size gives the page a size, in pixels.
func (b *browser) size(width, height int) {
	b.t.Helper()
	b.ask("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// scheme has the user prefer "light" or "dark".
func (b *browser) scheme(is string) {
	b.t.Helper()
	b.ask("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": is}}})
}
