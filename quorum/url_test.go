package quorum

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

func TestParse(t *testing.T) {
	u, err := url.Parse("redlock://app:secret@c,a:6380,b:6379/2?hf.layout=setnx")
	if err != nil {
		t.Fatal(err)
	}
	nodes, store, _, err := parse(u, "redis", []string{"hf.layout"})
	if err != nil || len(nodes) != 3 {
		t.Fatalf("%v, %v", nodes, err)
	}
	if want := "redlock:a:6380,b:6379,c/2?hf.layout=setnx"; store != want {
		t.Errorf("the store is %q, want %q", store, want)
	}
	if nodes[0].Name != "c" || nodes[2].Name != "b:6379" {
		t.Errorf("nodes %v", nodes)
	}
	given := ""
	driver.Register("quorumtest", func(_ context.Context, u *url.URL) (driver.Driver, error) {
		given = u.Host + " " + u.RawQuery
		return nil, errors.New("it is only asked for")
	})
	for params, want := range map[string]string{
		"hf.layout=setnx": "hf.layout=setnx", "hf.maxttl=1m&hf.durable=no": "hf.maxttl=1m", "hf.durable=yes": "hf.forget=go",
	} {
		u.RawQuery = params
		nodes, store, o, err := parse(u, "quorumtest", []string{"hf.layout"})
		if err != nil || o.Durable != (params == "hf.durable=yes") || strings.Contains(store, "hf.maxttl") || strings.Contains(store, "hf.durable") {
			t.Errorf("%s: %q, %+v, %v", params, store, o, err)
			continue
		}
		if nodes[1].Open(t.Context()); given != "a:6380 "+want {
			t.Errorf("%s: a node is opened by %q, want %q", params, given, want)
		}
	}
	for raw, want := range map[string]string{
		"redlock://a,b":                               "fewer than three",
		"redlock://a,b,":                              "malformed",
		"redlock:///a":                                "malformed",
		"redlock://a,b,c?hf.nosuch=1":                 "hf.nosuch",
		"redlock://a,b,c#x":                           "malformed",
		"redlock://a,b,c?hf.durable=x":                "hf.durable",
		"redlock://a,b,c?hf.durable=yes&hf.maxttl=1m": "hf.durable",
		"redlock://s3cret@a,b?hf.ttl=1":               "hf.ttl",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := parse(u, "redis", nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
