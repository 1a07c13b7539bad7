package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// TestBadInput: P10: bad input is refused before any I/O, by an error that names the thing and its value and says what
// is right.
func TestBadInput(t *testing.T) {
	type lock = func(*holdfast.Client) *holdfast.Lock
	named := func(name string) lock { return func(c *holdfast.Client) *holdfast.Lock { return c.Mutex(name, nil) } }
	with := func(o holdfast.Options) lock {
		return func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("x", &o) }
	}
	slots := func(n, permits int) lock {
		return func(c *holdfast.Client) *holdfast.Lock {
			return c.Semaphore("x", n, &holdfast.Options{Permits: permits})
		}
	}
	for _, tc := range []struct {
		name string
		lock lock
		want []string // parts of the error
	}{
		{"empty name", named(""), []string{"empty", "1 to 512"}},
		{"long name", named(strings.Repeat("n", 513)), []string{"513", "512"}},
		{"long with the prefix", named(strings.Repeat("n", 511)), []string{"513", "512", "prefix"}},
		{"control character", named("a\nb"), []string{`a\nb`, "control", "byte 1"}},
		{"not UTF-8", named("a\xff"), []string{`\xff`, "UTF-8"}},
		{"empty element", named("a//b"), []string{"a//b", "slash"}},
		{"negative TTL", with(holdfast.Options{TTL: -time.Second}), []string{"TTL", "-1s", "positive"}},
		{"short TTL", with(holdfast.Options{TTL: time.Microsecond}), []string{"TTL", "1µs", "1ms"}},
		{"TTL within the margin", with(holdfast.Options{TTL: 4 * time.Millisecond}), []string{"TTL", "4ms", "margin", "5ms"}},
		{"renewal too late", with(holdfast.Options{TTL: 10 * time.Second, RenewEvery: 10 * time.Second}), []string{"RenewEvery", "10s", "9.8s"}},
		{"renewal too often", with(holdfast.Options{RenewEvery: 5*time.Millisecond - 1}), []string{"RenewEvery", "4.999999ms", "5ms"}},
		{"TTL that leaves no time to renew", with(holdfast.Options{TTL: 10 * time.Millisecond}), []string{"TTL", "10ms", "5ms"}},
		{"negative delay", with(holdfast.Options{LockDelay: -1}), []string{"LockDelay", "-1ns", "24h"}},
		{"long minimum", with(holdfast.Options{MinHold: 48 * time.Hour}), []string{"MinHold", "48h", "24h"}},
		{"negative maximum", with(holdfast.Options{MaxHold: -1}), []string{"MaxHold", "-1ns", "8760h"}},
		{"long maximum", with(holdfast.Options{MaxHold: holdfast.MaxTTL + 1}), []string{"MaxHold", "8760h"}},
		{"permits of a mutex", with(holdfast.Options{Permits: 1}), []string{"Permits", "1", "semaphore"}},
		{"no slots", slots(0, 0), []string{"0 slots", "1 to"}},
		{"many slots", slots(1<<21, 0), []string{"2097152 slots", "1048576"}},
		{"too many permits", slots(3, 4), []string{"Permits", "4", "1 to 3"}},
		{"negative permits", slots(3, -1), []string{"Permits", "-1", "1 to 3"}},
		{"long note", with(holdfast.Options{Note: strings.Repeat("n", 257)}), []string{"Note", "257", "256"}},
		{"note not UTF-8", with(holdfast.Options{Note: "\xff"}), []string{"Note", "UTF-8"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				client, f := w.client(&holdfast.ClientOptions{Prefix: "p/"})
				_, acquire := tc.lock(client).Acquire(w.ctx)
				_, try := tc.lock(client).TryAcquire(w.ctx)
				do := tc.lock(client).Do(w.ctx, nil)
				for _, err := range []error{acquire, try, do} {
					if err == nil {
						t.Fatal("P10: accepted")
					}
					for _, part := range tc.want {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("P10: %q does not say %q", err, part)
						}
					}
				}
				if f.tries.Load() != 0 {
					t.Error("P10: the store was asked")
				}
			})
		})
	}
}

// TestContexts: P10: no context, no function, and a context that has ended are refused before any I/O.
func TestContexts(t *testing.T) {
	inWorld(t, func(w *world) {
		c, f := w.client(nil)
		lease := w.acquire(c.Mutex("held", nil))
		var none context.Context
		_, acquire := c.Mutex("x", nil).Acquire(none)
		_, try := c.Mutex("x", nil).TryAcquire(none)
		_, multi := holdfast.All(c.Mutex("x", nil)).Acquire(none)
		_, inspect := c.Inspect(none, "x")
		_, open := holdfast.Open(none, "mem://x")
		for op, err := range map[string]error{
			"acquire": acquire, "try": try, "multi": multi, "inspect": inspect, "open": open,
			"do":        c.Mutex("x", nil).Do(none, nil),
			"break":     c.Break(none, "x", 1),
			"renew":     lease.Renew(none),
			"downgrade": lease.Downgrade(none),
			"check":     c.CheckSequencer(none, lease.Sequencer()),
		} {
			if err == nil || !strings.Contains(err.Error(), "context is nil") {
				t.Errorf("P10: %s with a nil context: %v", op, err)
			}
		}
		for _, err := range c.List(none, "") {
			if err == nil || !strings.Contains(err.Error(), "context is nil") {
				t.Errorf("P10: list with a nil context: %v", err)
			}
		}
		for _, err := range []error{c.Mutex("x", nil).Do(w.ctx, nil), holdfast.All(c.Mutex("x", nil)).Do(w.ctx, nil)} {
			if err == nil || !strings.Contains(err.Error(), "function is nil") {
				t.Errorf("P10: Do of no function: %v", err)
			}
		}
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		if _, err := c.Mutex("x", nil).Acquire(ended); !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("Acquire with a context that has ended: %v", err)
		}
		if f.tries.Load() != 1 {
			t.Error("P10: the store was asked")
		}
	})
}

// TestTTL: the TTL is that of the lock, else that of the client, else the default, or the nearest that the store takes.
// A large margin makes the default renewal earlier.
func TestTTL(t *testing.T) {
	const s = time.Second
	for _, c := range []struct{ lock, client, margin, min, max, want time.Duration }{
		{want: 30 * s},
		{client: 7 * s, want: 7 * s},
		{lock: 3 * s, client: 7 * s, want: 3 * s},
		{lock: 6 * s, margin: 5 * s, want: 6 * s},
		{min: 60 * s, want: 60 * s},
		{max: 10 * s, want: 10 * s},
		{lock: 11 * s, max: 10 * s},
	} {
		inWorld(t, func(w *world) {
			_, f := w.client(nil)
			f.caps = func(caps driver.Caps) driver.Caps { caps.MinTTL, caps.MaxTTL = c.min, c.max; return caps }
			client := w.clientOf(f, &holdfast.ClientOptions{TTL: c.client, Margin: c.margin})
			lease, err := client.Mutex("x", &holdfast.Options{TTL: c.lock}).Acquire(w.ctx)
			if err != nil {
				if c.want != 0 || !strings.Contains(err.Error(), "longest") {
					t.Errorf("P10: %+v: %v", c, err)
				}
				return
			}
			if got := lease.Grant().TTL; got != c.want {
				t.Errorf("%+v: the TTL is %v", c, got)
			}
			time.Sleep(time.Hour)
			if err := lease.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	d := memlock.NewStore(nil).Client()
	for name, try := range map[string]func() (*holdfast.Client, error){
		"nil driver": func() (*holdfast.Client, error) { return holdfast.New(nil, nil) },
		"need": func() (*holdfast.Client, error) {
			return holdfast.New(tokenless{d}, &holdfast.ClientOptions{Need: holdfast.Caps{Fencing: true}})
		},
		"need of TTL": func() (*holdfast.Client, error) {
			return holdfast.New(d, &holdfast.ClientOptions{Need: holdfast.Caps{MinTTL: time.Microsecond}})
		},
		"negative TTL":  func() (*holdfast.Client, error) { return holdfast.New(d, &holdfast.ClientOptions{TTL: -1}) },
		"short TTL":     func() (*holdfast.Client, error) { return holdfast.New(d, &holdfast.ClientOptions{TTL: 1}) },
		"margin":        func() (*holdfast.Client, error) { return holdfast.New(d, &holdfast.ClientOptions{Margin: -1}) },
		"prefix":        func() (*holdfast.Client, error) { return holdfast.New(d, &holdfast.ClientOptions{Prefix: "/x"}) },
		"anonymous":     func() (*holdfast.Client, error) { return holdfast.New(anonymous{d}, nil) },
		"unknown store": func() (*holdfast.Client, error) { return holdfast.Open(t.Context(), "nosuch://x") },
	} {
		if c, err := try(); err == nil || c != nil {
			t.Errorf("P10: %s was accepted", name)
		} else if name == "need" && (!errors.Is(err, holdfast.ErrUnsupported) ||
			!strings.Contains(err.Error(), "fencing")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := holdfast.New(d, &holdfast.ClientOptions{Need: d.Caps()})
	if err != nil {
		t.Fatalf("a store lacks what it has: %v", err)
	}
	_ = c.Close()
}

type tokenless struct{ driver.Driver }

func (tokenless) Caps() driver.Caps { return driver.Caps{Store: "tokenless"} }

type anonymous struct{ driver.Driver }

func (anonymous) Caps() driver.Caps { return driver.Caps{} }

func TestOpen(t *testing.T) {
	const canary = "s3cr3t"
	for raw, want := range map[string]string{
		"":                                "empty",
		"orders":                          "scheme",
		"nosuch://x":                      "registered are: ",
		"mem://x?hf.nosuch=1":             "hf.nosuch",
		"mem://x?foo=1":                   "foo",
		"mem://x?hf.prefix=a&hf.prefix=b": "twice",
		"mem://x?hf.prefix=/a":            "Prefix",
		"mem://x?hf.ttl=10":               "10s or 1m30s",
		"mem://x?hf.ttl=1us":              "option TTL",
		"mem://user:" + canary + "@x":     "mem://name",
		"mem://user:" + canary + "%zz@x":  "parsed",
		"nosuch://u:" + canary + "@h/?password=" + canary: "registered are: ",
		"mem://x?password=" + canary + "&" + canary:       "password",
		"mem://" + strings.Repeat("x", 5000):              "4096",
	} {
		c, err := holdfast.Open(t.Context(), raw)
		if err == nil {
			_ = c.Close()
			t.Errorf("P10: %q was accepted", raw)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("P10: %q: %q does not say %q", raw, err, want)
		}
		if strings.Contains(err.Error(), canary) && !strings.Contains(raw, "&"+canary) {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// TestOpenWith: options are taken, and parameters of the URL are stronger.
func TestOpenWith(t *testing.T) {
	c, err := holdfast.OpenWith(t.Context(), "mem://open-with?hf.prefix=url/", &holdfast.ClientOptions{Prefix: "options/", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	plain, err := holdfast.Open(t.Context(), "mem://open-with")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	lease, err := c.Mutex("x", nil).TryAcquire(t.Context())
	if err != nil || time.Until(lease.ValidUntil()) < time.Minute {
		t.Fatalf("the TTL of the options is not that of the lock: %v", err)
	}
	if _, err := plain.Mutex("url/x", nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the URL's prefix does not win: %v", err)
	}
}

// TestPrefix: a prefix keeps apart programs that share a store, and they do not see it.
func TestPrefix(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _ := w.client(&holdfast.ClientOptions{Prefix: "a/"})
		b, _ := w.client(&holdfast.ClientOptions{Prefix: "b/"})
		plain, _ := w.client(nil)
		one, two := w.acquire(a.Mutex("x", nil)), w.acquire(b.Mutex("x", nil))
		if one.Name() != "x" {
			t.Errorf("the lease is called %q", one.Name())
		}
		if _, err := plain.Mutex("a/x", nil).TryAcquire(w.ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the store's name is not prefix and name: %v", err)
		}
		for c, want := range map[*holdfast.Client]string{a: "[x]", plain: "[a/x b/x]"} {
			var names []string
			for info, err := range c.List(w.ctx, "") {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, info.Name)
			}
			if slices.Sort(names); fmt.Sprint(names) != want {
				t.Errorf("listed are %v, want %v", names, want)
			}
		}
		if info, err := a.Inspect(w.ctx, "x"); err != nil || info.Name != "x" || len(info.Holders) != 1 {
			t.Errorf("a inspects %+v, %v", info, err)
		}
		if err := plain.CheckSequencer(w.ctx, one.Sequencer()); err != nil {
			t.Errorf("the sequencer does not name the store's lock: %v", err)
		}
		if err := b.CheckSequencer(w.ctx, one.Sequencer()); err == nil || errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("a sequencer from outside the prefix: %v", err)
		}
		if err := a.Break(w.ctx, "x", one.Token()); err != nil || two.Err() != nil {
			t.Errorf("a breaks its hold: %v, and b's is %v", err, two.Err())
		}
	})
}

// TestUnsupported: what the store cannot do is refused, notes that the user gives included. A mutex works.
func TestUnsupported(t *testing.T) {
	inWorld(t, func(w *world) {
		_, f := w.client(nil)
		f.caps = func(caps driver.Caps) driver.Caps { return driver.Caps{Store: caps.Store, NoNotes: true} }
		c := w.clientOf(struct{ driver.Driver }{f}, nil)
		lease := w.acquire(c.Mutex("x", nil))
		_, inspect := c.Inspect(w.ctx, "x")
		_, semaphore := c.Semaphore("x", 2, nil).Acquire(w.ctx)
		_, shared := c.RWMutex("x", nil).Read.Acquire(w.ctx)
		_, note := c.Mutex("y", &holdfast.Options{Note: "a note"}).TryAcquire(w.ctx)
		for op, err := range map[string]error{
			"inspect": inspect, "semaphore": semaphore, "shared": shared, "note": note,
			"break":     c.Break(w.ctx, "x", 1),
			"downgrade": lease.Downgrade(w.ctx),
			"check":     c.CheckSequencer(w.ctx, lease.Sequencer()),
		} {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("%s: %v", op, err)
			}
		}
		for _, err := range c.List(w.ctx, "") {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("list: %v", err)
			}
		}
		_ = lease.Release()
	})
}

func TestListPrefixes(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		w.acquire(c.Mutex("a/b", nil))
		for prefix, good := range map[string]bool{
			"": true, "a": true, "a/": true, "a/b": true, strings.Repeat("n", 512): true,
			"/": false, "a//": false, "a\n": false, strings.Repeat("n", 513): false,
		} {
			for _, err := range c.List(w.ctx, prefix) {
				if (err == nil) != good {
					t.Errorf("P10: list %.9q: %v", prefix, err)
				}
			}
			if names := 0; !good {
				for range c.List(w.ctx, prefix) {
					names++
				}
				if names != 1 {
					t.Errorf("P10: list %.9q was accepted", prefix)
				}
			}
		}
	})
}

// TestLeaseString: a lease prints as what it is, with every verb, and never shows its owner, by which
// the hold could be released.
func TestLeaseString(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease := w.acquire(c.Mutex("a b", nil))
		info, err := c.Inspect(w.ctx, "a b")
		if err != nil || len(info.Holders) != 1 {
			w.Fatal(info, err)
		}
		start := fmt.Sprintf("lease on %q, token %d: trusted for ", "a b", lease.Token())
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			text := fmt.Sprintf(verb, lease)
			if !strings.HasPrefix(text, start) || strings.Contains(text, info.Holders[0].Owner) {
				w.Errorf("%s: %s", verb, text)
			}
		}
		if text := fmt.Sprintf("%q", lease); !strings.HasPrefix(text, `"lease on \"a b\", token `) {
			w.Error(text)
		}
		w.release(lease)
		if text := lease.String(); !strings.Contains(text, strings.TrimPrefix(holdfast.ErrReleased.Error(), "holdfast: ")) {
			w.Errorf("after the release: %s", text)
		}
	})
}
