package zklock

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

func TestURL(t *testing.T) {
	for raw, want := range map[string]Config{
		"zk://":                      {Servers: []string{"localhost:2181"}},
		"zk://a,b:2182/":             {Servers: []string{"a:2181", "b:2182"}},
		"zk://[::1]":                 {Servers: []string{"[::1]:2181"}},
		"zk://h/app/locks":           {Servers: []string{"h:2181"}, Prefix: "app/locks"},
		"zk://u:p%40w@h?hf.acl=open": {Servers: []string{"h:2181"}, User: "u", Password: "p@w", Open: true},
		"zk://u:pw@h?hf.acl=creator": {Servers: []string{"h:2181"}, User: "u", Password: "pw"},
		"zk://h?hf.leader=latch":     {Servers: []string{"h:2181"}, Leader: Latch},
		"zk://h?hf.leader=selector":  {Servers: []string{"h:2181"}, Leader: Selector},
	} {
		u, err := driver.ParseURL(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		got, err := ParseURL(u)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s is read as %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestURLRefused(t *testing.T) {
	for raw, want := range map[string]string{
		"zk://h?hf.layout=x":                  "unknown URL parameter",
		"zk://h?hf.ca=x":                      "unknown URL parameter", // of zks
		"zk://h?ttl=5s":                       "unknown URL parameter",
		"zk://h?hf.leader=x":                  "hf.leader",
		"zk://h?hf.acl=x":                     "hf.acl",
		"zk://h?hf.acl=creator":               "needs a user",
		"zk://h?hf.admin=9000":                "unknown URL parameter",
		"zk://h/a//b":                         "empty element",
		"zk://h/a/../b":                       "refuses",
		"zk://h/.holdfast":                    "Holdfast's own",
		"zk://h,":                             "empty",
		"zk:h":                                "malformed",
		"zk://h#x":                            "malformed",
		"zk://:secret@h":                      "user",
		"zk://a%3Ab:secret@h":                 "colon",
		"zks://h?hf.cert=/nowhere":            "hf.cert",
		"zks://h?hf.ca=/nowhere":              "open /nowhere",
		"zk://u:secret@h?hf.leader=secretive": "hf.leader",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		d, err := open(t.Context(), u)
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v, want an error that says %q", raw, err, want)
		}
	}
}
