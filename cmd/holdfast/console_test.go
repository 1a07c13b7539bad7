//go:build linux

package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// page returns a page's status and text.
func page(t *testing.T, do func() (*http.Response, error)) (int, string) {
	t.Helper()
	resp, err := do()
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

// console starts a console, and returns it and its address.
func (w *world) console(flags ...string) (*process, string) {
	w.t.Helper()
	p := w.start(append([]string{"console"}, flags...)...)
	p.awaitOutput("/\n")
	return p, strings.TrimSuffix(strings.TrimSpace(p.out.String()), "/")
}

// TestConsole: the page shows a lock of two stores, runs the doctor and breaks the lock; and Ctrl-C ends it well.
func TestConsole(t *testing.T) {
	w := newWorld(t)
	second := "file://" + w.path("second") + "?hf.prefix=app/"
	p, address := w.console("--allow-break", "file://"+w.locks, second)
	w.start("--store", second, "run", "--note", "here on h-2, pid 4", "other", "--", "sleep", "600")
	holder := w.start("run", "deploy/shop", "--", "sleep", "600")
	get := func(path string) (int, string) {
		return page(t, func() (*http.Response, error) { return http.Get(address + path) })
	}
	var text string
	await(t, "the lock on the page", func() bool {
		_, text = get("/")
		return strings.Contains(text, ">deploy/shop<") && strings.Contains(text, "<bdi>sleep</bdi>")
	})
	await(t, "the lock of the second store", func() bool {
		_, other := get("/?store=1")
		return strings.Contains(other, ">other<") && strings.Contains(other, "h-2")
	})
	_, form := get("/console/doctor")
	secret := regexp.MustCompile(`name="secret" value="(\w+)"`).FindStringSubmatch(form)[1]
	post := func(path string, v url.Values) (int, string) {
		v.Set("secret", secret)
		return page(t, func() (*http.Response, error) { return http.PostForm(address+path, v) })
	}
	if status, text := post("/console/doctor", url.Values{}); status != http.StatusOK || !strings.Contains(text, "</span> lock") {
		t.Errorf("the doctor: status %d\n%s", status, text)
	}
	link := regexp.MustCompile(`/console/break\?name=deploy%2Fshop&amp;token=(\d+)`).FindStringSubmatch(text)
	if link == nil {
		t.Fatalf("there is no link to break the lock:\n%s", text)
	}
	if status, text := post("/console/break?name=deploy/shop", url.Values{"token": {link[1]}}); status != http.StatusOK || !strings.Contains(text, "broken by this console") {
		t.Errorf("the break: status %d\n%s", status, text)
	}
	holder.ends(76)
	p.says("broke deploy/shop, token " + link[1])
	p.signal(syscall.SIGINT)
	p.ends(0)
}

// TestConsoleGuards: what may not be seen by others is refused before anything is served.
func TestConsoleGuards(t *testing.T) {
	w := newWorld(t)
	short, token := w.path("short"), w.path("token")
	for file, text := range map[string]string{short: "too short\n", token: "correct horse battery\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for says, flags := range map[string][]string{
		"is not of this host alone": {"--listen", "0.0.0.0:0"}, "Give the console a --token-file": {"--listen", ":0"},
		`"x": host:port is right`: {"--listen", "x"}, `99999": host:port is right`: {"--listen", "127.0.0.1:99999"}, "no such file": {"--token-file", w.path("none")}, "at least 16 are needed": {"--token-file", short},
		"not by both": {"--store", "file:///x", "file:///y"}, "exclude nobody": {"mem://x"}, "scheme": {"bogus"},
	} {
		w.run(64, append([]string{"console"}, flags...)...).expectErr(says)
	}
	w.run(69, "console", "redis://127.0.0.1:1").expectErr("cannot open redis://127.0.0.1:1")
	p, address := w.console("--listen", "0.0.0.0:0", "--token-file", token)
	address = strings.Replace(address, "[::]", "127.0.0.1", 1)
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	if status, text := page(t, func() (*http.Response, error) { return browser.Get(address) }); status != http.StatusUnauthorized || strings.Contains(text, w.locks) {
		t.Errorf("without a token: status %d\n%s", status, text)
	}
	login := func() (*http.Response, error) {
		return browser.PostForm(address+"/console/login", url.Values{"token": {"correct horse battery"}})
	}
	if status, text := page(t, login); status != http.StatusOK || !strings.Contains(text, "No locks are in use") || strings.Contains(text, "Break") {
		t.Errorf("with the token: status %d\n%s", status, text)
	}
	w.run(70, "console", "--listen", strings.TrimPrefix(address, "http://")).expectErr("address already in use")
	p.signal(syscall.SIGTERM)
	p.ends(0)
}
