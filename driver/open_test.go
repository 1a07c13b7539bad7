package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"mem://":                               "",
		"mem://orders?hf.prefix=a%2F":          "",
		"redis://u:p%40ss@h:1/0":               "",
		"redis://u:p@ss@h":                     "", // the last @ ends the password
		"file:///var/lib/a@b":                  "",
		"redis://h/a%40b":                      "",
		"":                                     "empty",
		"localhost":                            "no scheme",
		"//localhost":                          "no scheme",
		"1host:6379":                           "cannot be parsed",
		"redis://h:x":                          "cannot be parsed",
		"redis://h/%zz":                        "cannot be parsed",
		"mem://h\n":                            "cannot be parsed",
		"mem://h?a=%zz":                        "malformed query",
		"mem://h?a;b":                          "malformed query",
		"mem://" + strings.Repeat("x", 4096-5): "4097 bytes",
		"redis://u:12/34@h":                    "@ behind the host",
		"redis://u:12?34@h":                    "@ behind the host",
		"redis://u:12#34@h":                    "@ behind the host",
	} {
		u, err := ParseURL(raw)
		switch {
		case want == "" && (err != nil || u == nil):
			t.Errorf("P10: %q is refused: %v", raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("P10: %q: the error is %v, want one that says %q", raw, err, want)
		}
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"mem://orders":                 "mem://orders",
		"redis://u:secret@h:1/0":       "redis://u:xxxxx@h:1/0",
		"redis://:secret@h":            "redis://:xxxxx@h",
		"redis://secret@h":             "redis://xxxxx@h",
		"x://h?hf.prefix=a&key=secret": "x://h?hf.prefix=a&key=xxxxx",
		"x://h?key=secret&key=secret":  "x://h?key=xxxxx&key=xxxxx",
		"redis:u:secret@h":             "redis:xxxxx",
		"x://h/#secret":                "x://h/#xxxxx",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := Redact(u); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
		if u.String() != raw {
			t.Errorf("Redact has changed the URL to %q", u)
		}
	}
}

func TestParams(t *testing.T) {
	for _, c := range []struct {
		query   string
		foreign bool
		known   []string
		want    map[string]string
		err     string
	}{
		{query: "", want: map[string]string{}},
		{query: "hf.a=1&hf.b=", known: []string{"hf.a", "hf.b"},
			want: map[string]string{"hf.a": "1", "hf.b": ""}},
		{query: "hf.a=1&sslmode=on", foreign: true, known: []string{"hf.a"},
			want: map[string]string{"hf.a": "1"}},
		{query: "sslmode=on", known: []string{"hf.a"},
			err: `unknown URL parameter "sslmode" for x://; known are: hf.a, hf.prefix, hf.ttl`},
		{query: "hf.b=1", known: []string{"hf.a"}, err: `unknown URL parameter "hf.b"`},
		{query: "hf.b=1", foreign: true, err: "known are: hf.prefix, hf.ttl"},
		{query: "hf.ttl=9s", known: []string{"hf.a"}, err: `"hf.ttl" is for the client, not for the driver`},
		{query: "HF.A=1", known: []string{"hf.a"}, err: `unknown URL parameter "HF.A"`},
		{query: "hf.a=1&hf.a=1", known: []string{"hf.a"}, err: `"hf.a" is given 2 times`},
		{query: "hf.a=%zz", known: []string{"hf.a"}, err: "malformed query"},
	} {
		got, err := Params(&url.URL{Scheme: "x", RawQuery: c.query}, c.foreign, c.known...)
		switch {
		case c.err == "" && (err != nil || !maps.Equal(got, c.want)):
			t.Errorf("P10: %q gives %v, %v, want %v", c.query, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("P10: %q: the error is %v, want one that says %q", c.query, err, c.err)
		}
	}
}

func TestRegister(t *testing.T) {
	none := func(context.Context, *url.URL) (Driver, error) { return nil, ErrClosed }
	scheme := strings.ToLower("test-" + rand.Text()) // a scheme stays registered, and tests are repeated
	Register(scheme, none)
	for scheme, open := range map[string]Opener{"": none, scheme: none, "test-nil": nil} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register(%q) does not panic", scheme)
				}
			}()
			Register(scheme, open)
		}()
	}
	if _, err := Open(t.Context(), &url.URL{Scheme: scheme}); !errors.Is(err, ErrClosed) {
		t.Errorf("Open returns %v, not what the opener returned", err)
	}
	for unknown, says := range map[string]string{
		"test-unknown": scheme, // those that are registered
		"mariadb":      `import _ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"`,
	} {
		_, err := Open(t.Context(), &url.URL{Scheme: unknown})
		if err == nil || !strings.Contains(err.Error(), unknown) || !strings.Contains(err.Error(), says) {
			t.Errorf("P10: the error %v does not say what is wrong and what is right", err)
		}
	}
}

// TestOpenNoAnswer: a store that does not answer in time is named, with the time.
func TestOpenNoAnswer(t *testing.T) {
	scheme := strings.ToLower("silent-" + rand.Text()) // a scheme stays registered, and tests are repeated
	Register(scheme, func(ctx context.Context, _ *url.URL) (Driver, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, &url.URL{Scheme: scheme, User: url.UserPassword("u", "s3cr3t"), Host: "h:1234"})
	if err == nil || !strings.HasPrefix(err.Error(), "no answer from h:1234 within ") || !strings.HasSuffix(err.Error(), "s: "+context.DeadlineExceeded.Error()) {
		t.Errorf("the error is %v", err)
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Error("it shows the password")
	}
}

// FuzzURL: no store URL makes a function of this package panic. No error and no redaction shows a
// password, escaped or not, or the value of a parameter that is not ours.
func FuzzURL(f *testing.F) {
	const canary = "Zq7canary"
	for _, password := range []string{"", "p@ss", "12/34", "12?34", "12#34", "1@2/34", "1:2", "%",
		"%zz", "[", " ", "a&b=c", "/", "?", "#", "\n", "ü"} {
		f.Add("user", password, "host:6379/0?hf.prefix=a")
		f.Add("", password, "host")
	}
	f.Add("u", "p", "[::1]:1/a@b#c?d=e;f")
	f.Add("u", "p", "h?a=%zz")
	f.Add("u", "p", "")
	f.Fuzz(func(t *testing.T, user, password, rest string) {
		if strings.Contains(user+rest, canary) {
			return
		}
		user = url.QueryEscape(user)
		for _, raw := range []string{
			"redis://" + user + ":" + password + canary + "@" + rest,
			"redis://" + user + ":" + canary + password + "@" + rest,
			"redis://" + user + ":" + url.QueryEscape(password+canary) + "@" + rest,
			"redis:" + user + ":" + canary + "@" + rest,
			"redis://h/?key=" + url.QueryEscape(canary+password),
		} {
			u, err := ParseURL(raw)
			errs, shown := []error{err}, ""
			if err == nil {
				_, foreign := Params(u, true, "hf.known")
				_, strict := Params(u, false, "hf.known")
				_, open := Open(t.Context(), u)
				errs, shown = []error{foreign, strict, open}, Redact(u)
			}
			if all := fmt.Sprint(shown, errs); strings.Contains(all, canary) {
				t.Errorf("%q is shown: %s", raw, all)
			}
		}
	})
}
