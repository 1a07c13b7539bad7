package storeurl

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestTake(t *testing.T) {
	for raw, want := range map[string]struct {
		Params
		rest string
	}{
		"mem://x":           {rest: "mem://x"},
		"mem://x?b=2&a=%20": {rest: "mem://x?b=2&a=%20"}, // left as it is
		"mem://x?hf.prefix=a/&hf.ttl=1m30s&hf.poll=spin": {Params{"a/", 90 * time.Second}, "mem://x?hf.poll=spin"},
		"mem://x?hf.prefix=":                             {rest: "mem://x"},
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		p, rest, err := Take(u)
		if err != nil || p != want.Params || rest.String() != want.rest || u.String() != raw {
			t.Errorf("%s: %+v, %v, %v", raw, p, rest, err)
		}
	}
	for query, want := range map[string]string{
		"hf.ttl=10":            `"10"`,
		"hf.ttl=0s":            `"0s"`,
		"hf.ttl=-1s":           `"-1s"`,
		"hf.ttl=":              `""`,
		"hf.ttl=1s&hf.ttl=1s":  "twice",
		"hf.prefix=&hf.prefix": "twice",
	} {
		if _, _, err := Take(&url.URL{RawQuery: query}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:1": true, "127.0.0.1": true, "127.9.9.9:1": true, "::1": true, "[::1]": true, "[::1]:1": true,
		"": false, ":1": false, "0.0.0.0:1": false, "[::]:1": false, "::2": false, "localhost.evil.example": false, "evil.example:1": false,
	} {
		if got := Loopback(host); got != want {
			t.Errorf("Loopback(%q) = %t", host, got)
		}
	}
}
