//go:build soak && linux

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSecureCell: a cell with TLS and principals, as operators set it up and clients use it.
func TestSecureCell(t *testing.T) {
	w := newWorld(t)
	w.certificates("member", "reports", "stranger")
	billing, first := w.token()
	root, ofRoot := w.token()
	if billing == root || !strings.HasPrefix(billing, "hft_") || strings.Contains(first, billing) {
		t.Fatalf("tokens are %s and %s, their lines %s", billing, root, first)
	}
	principals := func(tokens string) {
		w.write("principals.json.new", fmt.Sprintf(`{"principals": [
			{"name": "billing", "tokens": [%s], "rights": [{"prefix": "billing", "right": "write"}]},
			{"name": "reports", "rights": [{"prefix": "reports", "right": "admin"}]},
			{"name": "root", "tokens": [%s], "rights": [{"prefix": "", "right": "admin"}]}]}`, tokens, ofRoot))
		if err := os.Rename(w.path("principals.json.new"), w.path("principals.json")); err != nil {
			t.Fatal(err)
		}
	}
	principals(first)
	w.run(64, "serve", "--data", w.path("data"), "--listen", "0.0.0.0:0").expectErr("--insecure")
	w.run(64, "serve", "--data", w.path("data"), "--listen", "0.0.0.0:0", "--tls-cert", w.path("member.pem"), "--tls-key", w.path("member.key")).
		expectErr("file of principals")
	member := w.start("serve", "--data", w.path("data"), "--listen", "127.0.0.1:0", "--principals", w.path("principals.json"),
		"--tls-cert", w.path("member.pem"), "--tls-key", w.path("member.key"), "--tls-client-ca", w.path("ca.pem"))
	await(t, "the member serves", func() bool { return strings.Contains(member.out.String(), "cells://") })
	address := strings.TrimPrefix(strings.TrimSpace(member.out.String()), "cells://")
	at := func(token, rest string) string {
		if token != "" {
			token = ":" + token + "@"
		}
		return "HOLDFAST_STORE=cells://" + token + address + rest
	}
	ca := "?hf.ca=" + w.path("ca.pem")
	as := func(store string) *world {
		other := *w
		other.env = append(other.env[:len(other.env):len(other.env)], store)
		return &other
	}
	// By a token in the URL, in a file, and by a certificate.
	as(at(billing, "/billing"+ca)).run(0, "run", "job", "--", "true")
	w.write("token", billing+"\n")
	byFile := as(at("", "/billing"+ca+"&hf.token-file="+w.path("token")))
	byFile.run(0, "run", "job", "--", "true")
	reports := as(at("", "/reports"+ca+"&hf.cert="+w.path("reports.pem")+"&hf.key="+w.path("reports.key")))
	reports.run(0, "run", "job", "--", "true")
	reports.run(0, "files", "put", "figures", w.path("token"))

	// Nobody gets more than he may.
	as(at(billing, "/reports"+ca)).run(69, "run", "job", "--", "true").expectErr("no right to write")
	as(at(billing, "/reports"+ca)).run(64, "files", "get", "figures").expectErr("may not do this")
	as(at(billing, ca)).run(64, "cell", "sessions").expectErr("administer")
	as(at(billing, ca)).run(64, "cell", "backup", w.path("backup")).expectErr("administer")
	as(at("", ca)).run(69, "run", "job", "--", "true").expectErr("bearer token")
	as(at("", ca+"&hf.cert="+w.path("stranger.pem")+"&hf.key="+w.path("stranger.key"))).run(69, "cell", "members").expectErr("bearer token")
	wrong := as(at("hft_WRONG", ca)).run(69, "run", "job", "--", "true")
	wrong.expectErr("bearer token")
	if strings.Contains(wrong.err.String(), "hft_WRONG") {
		t.Errorf("a token is shown: %s", wrong.err.String())
	}
	as(at(billing, "/billing")).run(69, "run", "job", "--", "true").expectErr("certificate")
	as("HOLDFAST_STORE=cell://:"+billing+"@"+address).run(69, "run", "job", "--", "true")
	operator := as(at(root, ca))
	operator.run(0, "cell", "status").expectOut("leads")
	operator.run(0, "cell", "backup", w.path("backup"))
	operator.run(0, "files", "get", "reports/figures").expectOut(billing)

	// A token is replaced while a client holds a lock by it, and then revoked.
	holder := byFile.start("run", "--ttl", "4s", "held", "--", "sleep", "60")
	await(t, "the hold", func() bool { return strings.Contains(byFile.run(0, "ls").out.String(), "held") })
	next, second := w.token()
	principals(first + ", " + second)
	await(t, "the second token", func() bool { return as(at(next, "/billing"+ca)).start("ls").wait() == 0 })
	w.write("token", next)
	await(t, "the file is read again", func() bool { return byFile.start("ls").wait() == 0 })
	principals(second)
	await(t, "the first token is revoked", func() bool { return as(at(billing, "/billing"+ca)).start("ls").wait() == 69 })
	for revoked := time.Now(); time.Since(revoked) < 5*time.Second; { // longer than the holder could go on with the first
		byFile.run(0, "ls").expectOut("held")
	}
	principals("")
	holder.ends(76)
	member.signal(syscall.SIGTERM)
	member.ends(0)
}
