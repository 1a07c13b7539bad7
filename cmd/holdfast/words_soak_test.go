//go:build soak && linux

package main

import (
	"net"
	"strings"
	"testing"
)

// TestSilentServer: a server that accepts and says nothing is named, with the time.
func TestSilentServer(t *testing.T) {
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { // it never says a word
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	addr := listener.Addr().String()
	for _, scheme := range []string{"redis", "etcd", "postgres", "zk"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			v := *w
			v.t = t
			p := v.run(69, "--store", scheme+"://u:s3cr3t@"+addr+"/0", "run", "-n", "x", "--", "touch", w.path("ran"))
			p.expectErr("no answer from " + addr + " within ")
			if strings.Contains(p.err.String(), "s3cr3t") {
				t.Error("the password is shown")
			}
		})
	}
}
