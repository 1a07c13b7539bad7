package redislock

import (
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]struct {
		address, user, password string
		db                      int
		tls                     bool
		primary                 string
	}{
		"redis://":                             {address: "localhost:6379"},
		"redis://example.org/":                 {address: "example.org:6379"},
		"redis://example.org:1234/7":           {address: "example.org:1234", db: 7},
		"redis://[::1]:1234":                   {address: "[::1]:1234"},
		"redis://:secret@h":                    {address: "h:6379", password: "secret"},
		"rediss://u%40x:p%2F@h/1":              {address: "h:6379", user: "u@x", password: "p/", db: 1, tls: true},
		"redis+sentinel://a,b:1/main":          {address: "a:26379 b:1", primary: "main"},
		"redis+sentinel://a:1,b:2/main":        {address: "a:1 b:2", primary: "main"},
		"redis+sentinel://[::1]/main":          {address: "[::1]:26379", primary: "main"},
		"rediss+sentinel://u:p@a/main/2":       {address: "a:26379", primary: "main", user: "u", password: "p", db: 2, tls: true},
		"redis+unix:///run/r.sock":             {address: "/run/r.sock"},
		"redis+unix://u:p@/run/r.sock?hf.db=3": {address: "/run/r.sock", user: "u", password: "p", db: 3},
	} {
		u, err := driver.ParseURL(raw)
		testserver.Must(t, err)
		to, _, err := parse(u)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if strings.Join(to.addresses, " ") != want.address || to.primary != want.primary || to.user != want.user || to.password != want.password ||
			to.database != want.db || (to.tls != nil) != want.tls {
			t.Errorf("%s is %+v", raw, to)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"redis://h?db=1":                  `"db"`,
		"redis://h?hf.db=1":               `"hf.db"`,
		"redis://h?hf.prefix=a":           `"hf.prefix"`, // package holdfast's, which takes it away
		"redis://h?hf.poll=1s":            `"hf.poll"`,
		"redis://h?hf.wait=spin":          `"hf.wait"`,
		"redis://h/one":                   "not a number",
		"redis://h/-1":                    "not a number",
		"redis://h/0/1":                   "not a number",
		"redis:h":                         "malformed",
		"redis://s3cret@h":                "without a password",
		"redis://a,b":                     "several hosts",
		"redis+sentinel://a,b":            "does not name the primary",
		"redis+sentinel://a,/main":        "host 2",
		"redis+sentinel://a/main/one":     "not a number",
		"redis+sentinel://a/main?hf.ca=x": "hf.ca",
		"redis+unix://host/run/r.sock":    "three slashes",
		"redis+unix://":                   "three slashes",

		"redis://h?hf.layout=redison":                        "layout",
		"redis://h?hf.redisson=fair":                         "layout redisson",
		"redis+cluster://h?hf.layout=setnx&hf.redisson=lock": "layout redisson",
		"redis://h?hf.layout=redisson&hf.redisson=fairer":    "fair, fenced and spin",
	} {
		u, err := url.Parse(raw)
		testserver.Must(t, err)
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v does not say %q", raw, err, says)
		}
	}
}

// TestOpen opens locks by URL, through a host's port and a socket, with and
// without the password.
func TestOpen(t *testing.T) {
	const password = "s3cret"
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--requirepass", password}})
	one, err := holdfast.Open(t.Context(), "redis://:"+password+"@"+server.Addr+"/2")
	testserver.Must(t, err)
	defer one.Close()
	two, err := holdfast.Open(t.Context(), "redis+unix://:"+password+"@"+server.Socket+"?hf.db=2")
	testserver.Must(t, err)
	defer two.Close()
	if one.Caps().Store != two.Caps().Store {
		t.Errorf("one database is two stores, %q and %q", one.Caps().Store, two.Caps().Store)
	}
	other, err := holdfast.Open(t.Context(), "redis://:"+password+"@"+server.Addr+"/3")
	testserver.Must(t, err)
	defer other.Close()
	if one.Caps().Store == other.Caps().Store {
		t.Errorf("two databases are one store, %q", one.Caps().Store)
	}
	for _, raw := range []string{"redis://" + server.Addr, "redis://:wrong-" + password + "@" + server.Addr, "redis://:" + password + "@127.0.0.1:1"} {
		c, err := holdfast.Open(t.Context(), raw)
		if err == nil {
			c.Close()
			t.Errorf("%s was opened", raw)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}
