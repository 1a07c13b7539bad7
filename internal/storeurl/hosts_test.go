package storeurl

import (
	"slices"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "localhost:2181",
		"a":                      "a:2181",
		"a:":                     "a:2181",
		"a:1,b,10.0.0.1:2":       "a:1 b:2181 10.0.0.1:2",
		"[::1]:1,[::1]":          "[::1]:1 [::1]:2181",
		"a,,b":                   "error: host 2 of the store URL is empty",
		":1":                     "error: host 1 of the store URL is empty",
		"a,":                     "error: host 2 of the store URL is empty",
		strings.Repeat("a,", 64): "error: store URL has 65 hosts: at most 64 are allowed",
	} {
		list, err := Hosts(text, "2181")
		got := strings.Join(list, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("Hosts(%q) = %s, want %s", text, got, want)
		}
	}
	list, err := Hosts(strings.Repeat("a,", 63)+"a", "1")
	if err != nil || len(list) != 64 || slices.Contains(list, "") {
		t.Errorf("64 hosts are %v, %v", list, err)
	}
}
