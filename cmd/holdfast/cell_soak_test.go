//go:build soak && linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// objects reads the JSON objects that a command printed.
func objects(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, o)
	}
	return all
}

// TestCellCommands: an operator looks at a cell, breaks a hold, ends a session, and removes and adds members.
func TestCellCommands(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Args: []string{"--audit", w.path("audit")}})
	w.env = append(w.env, "HOLDFAST_STORE=cell://"+server.Addrs())
	said := objects(t, w.run(0, "cell", "status", "-o", "json").out.String())
	leaders := 0
	for _, s := range said {
		if s["leads"] == true {
			leaders++
		}
		if s["cell"] != said[0]["cell"] {
			t.Errorf("the members are of several cells: %v", said)
		}
	}
	if len(said) != 3 || leaders != 1 {
		t.Errorf("the members say %v", said)
	}
	w.run(0, "cell", "status").expectOut("leads")

	// A hold is broken.
	broken := w.start("run", "job", "--", "sh", "-c", "echo up; sleep 60")
	broken.awaitOutput("up")
	w.breakLock("job")
	broken.ends(76)

	// A session is seen, and ended.
	holder := w.start("run", "job", "--", "sh", "-c", "echo up; sleep 60")
	holder.awaitOutput("up")
	sessions := objects(t, w.run(0, "cell", "sessions", "-o", "json").out.String())
	if len(sessions) != 1 || sessions[0]["holds"] != 1.0 {
		t.Fatalf("the sessions are %v", sessions)
	}
	w.run(0, "cell", "sessions").expectOut("HOLDS")
	w.run(0, "cell", "kill", sessions[0]["id"].(string))
	holder.ends(76)
	w.run(0, "cell", "sessions").expectErr("no sessions")
	w.run(64, "cell", "kill", "nonsense").expectErr(`"nonsense" is no session's`)

	// A member dies, and another is announced.
	lost := server.Members[2]
	lost.Kill()
	w.run(1, "cell", "status").expectErr("no answer from " + lost.Addr)
	w.run(0, "cell", "remove", lost.Name)
	if n := len(objects(t, w.run(0, "cell", "members", "-o", "json").out.String())); n != 2 {
		t.Errorf("there are %d members", n)
	}
	w.run(64, "cell", "add", "10.0.0.1").expectErr("host:port")
	w.run(0, "cell", "add", "http://127.0.0.1:1").expectOut("to be started")
	w.run(64, "--store", "file://"+w.path("locks"), "cell", "status").expectErr("cell://")
	audit, err := os.ReadFile(w.path("audit"))
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, line := range objects(t, string(audit)) {
		done = append(done, line["msg"].(string))
	}
	if want := []string{"a hold was broken", "a session was killed", "a member was removed", "a member was added"}; !slices.Equal(done, want) {
		t.Errorf("the audit log has %q, want %q", done, want)
	}
}

// TestCellBackup: a cell that is lost is made anew of its backup.
func TestCellBackup(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartCell(t, testserver.CellOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=cell://"+server.Addrs())
	if err := os.WriteFile(w.path("text"), []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(0, "files", "put", "app/config", w.path("text"))
	before := w.run(0, "run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").out.String()
	w.run(0, "cell", "backup", w.path("backup")).expectErr("KiB")
	w.run(64, "cell", "backup", w.path("backup")).expectErr("file exists")
	piped := w.run(0, "cell", "backup", "-").out.String()
	if len(piped) < 4096 {
		t.Errorf("the backup to the standard output has %d bytes", len(piped))
	}
	server.Members[0].Kill()
	w.run(69, "cell", "backup", w.path("other"))
	if _, err := os.Stat(w.path("other")); !os.IsNotExist(err) {
		t.Errorf("a backup that is not whole: %v", err)
	}
	w.run(1, "cell", "restore", w.path("text"), "--data", w.path("data")).expectErr("no backup")
	w.run(0, "cell", "restore", w.path("backup"), "--data", w.path("data"))
	w.run(1, "cell", "restore", w.path("backup"), "--data", w.path("data")).expectErr("new directory")
	restored := w.start("serve", "--data", w.path("data"), "--listen", "127.0.0.1:0")
	restored.awaitOutput("cell://")
	url := strings.TrimSpace(restored.out.String())
	if got := w.run(0, "--store", url, "files", "get", "app/config").out.String(); got != "precious\n" {
		t.Errorf("the file is %q", got)
	}
	after := w.run(0, "--store", url, "run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").out.String()
	if len(after) < len(before) || len(after) == len(before) && after <= before {
		t.Errorf("P3: the token %s after %s", after, before)
	}
	restored.signal(syscall.SIGTERM)
	restored.ends(0)
}

// TestSecureCell: a cell with TLS and principals, as operators set it up by commands, and clients use it.
func TestSecureCell(t *testing.T) {
	w := newWorld(t)
	w.certificates("member", "reports", "stranger")
	billing, first := w.token()
	root, ofRoot := w.token()
	w.write("principals.json", fmt.Sprintf(`{"principals": [
		{"name": "billing", "tokens": [%s], "rights": [{"prefix": "billing", "right": "write"}]},
		{"name": "reports", "rights": [{"prefix": "reports", "right": "admin"}]},
		{"name": "root", "tokens": [%s], "rights": [{"prefix": "", "right": "admin"}]}]}`, first, ofRoot))
	w.run(64, "serve", "--data", w.path("data"), "--listen", "0.0.0.0:0").expectErr("--insecure")
	member := w.start("serve", "--data", w.path("data"), "--listen", "127.0.0.1:0", "--principals", w.path("principals.json"),
		"--tls-cert", w.path("member.pem"), "--tls-key", w.path("member.key"), "--tls-client-ca", w.path("ca.pem"))
	member.awaitOutput("cells://")
	address := strings.TrimPrefix(strings.TrimSpace(member.out.String()), "cells://")
	as := func(who, rest string) *world {
		other := *w
		other.env = append(other.env[:len(other.env):len(other.env)], "HOLDFAST_STORE=cells://"+who+address+rest+"?hf.ca="+w.path("ca.pem"))
		return &other
	}
	certificate := func(of string) string { return "&hf.cert=" + w.path(of+".pem") + "&hf.key=" + w.path(of+".key") }
	// By a token in the URL, in a file, and by a certificate.
	as(":"+billing+"@", "/billing").run(0, "run", "job", "--", "true")
	w.write("token", billing+"\n")
	byFile, reports, stranger := as("", "/billing"), as("", "/reports"), as("", "")
	byFile.env[len(byFile.env)-1] += "&hf.token-file=" + w.path("token")
	reports.env[len(reports.env)-1] += certificate("reports")
	stranger.env[len(stranger.env)-1] += certificate("stranger")
	byFile.run(0, "run", "job", "--", "true")
	reports.run(0, "run", "job", "--", "true")
	// Nobody gets more than he may.
	as(":"+billing+"@", "/reports").run(69, "run", "job", "--", "true").expectErr("no right to write")
	as(":"+billing+"@", "").run(64, "cell", "sessions").expectErr("administer")
	stranger.run(69, "cell", "members").expectErr("bearer token")
	wrong := as(":hft_WRONG@", "").run(69, "run", "job", "--", "true")
	wrong.expectErr("bearer token")
	if strings.Contains(wrong.err.String(), "hft_WRONG") {
		t.Errorf("a token is shown: %s", wrong.err.String())
	}
	as(":"+root+"@", "").run(0, "cell", "status").expectOut("leads")
	// The holder loses the lock of a principal that is no more.
	holder := byFile.start("run", "--ttl", "4s", "held", "--", "sleep", "60")
	await(t, "the hold", func() bool { return strings.Contains(byFile.run(0, "ls").out.String(), "held") })
	w.write("principals.json", fmt.Sprintf(`{"principals": [{"name": "root", "tokens": [%s], "rights": [{"prefix": "", "right": "admin"}]}]}`, ofRoot))
	holder.ends(76)
	member.signal(syscall.SIGTERM)
	member.ends(0)
}

// certificates makes a certificate for each name, in the files NAME.pem and NAME.key. All of them are authorities in
// the file ca.pem.
func (w *world) certificates(names ...string) {
	w.t.Helper()
	all := ""
	for i, name := range names {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		secret, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		cert, err2 := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
		key, err3 := x509.MarshalPKCS8PrivateKey(secret)
		if err := errors.Join(err1, err2, err3); err != nil {
			w.t.Fatal(err)
		}
		text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
		all += text
		w.write(name+".pem", text)
		w.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	}
	w.write("ca.pem", all)
}

func (w *world) write(name, text string) {
	w.t.Helper()
	whole := w.path(name + ".new")
	if err := errors.Join(os.WriteFile(whole, []byte(text), 0o600), os.Rename(whole, w.path(name))); err != nil {
		w.t.Fatal(err)
	}
}

// token makes a token, and returns it and its line for the file of principals.
func (w *world) token() (token, line string) {
	token = rand.Text()
	return token, fmt.Sprintf(`{"sha256": "%x", "expires": "%s"}`, sha256.Sum256([]byte(token)), time.Now().Add(time.Hour).Format(time.RFC3339))
}

// TestFilesCommands reads and writes the files of a cell as an operator does.
func TestFilesCommands(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartCell(t, testserver.CellOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=cell://"+server.Addrs()+"/team")
	if err := os.WriteFile(w.path("one"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(1, "files", "get", "app/config").expectErr("no such node")
	w.run(0, "files", "put", "app/config", w.path("one"), "--if-generation", "0")
	w.run(1, "files", "put", "app/config", w.path("one"), "--if-generation", "0").expectErr("another generation")
	if got := w.run(0, "files", "get", "app/config").out.String(); got != "one\n" {
		t.Errorf("the file is printed as %q", got)
	}
	file := objects(t, w.run(0, "files", "get", "app/config", "-o", "json").out.String())[0]
	if file["path"] != "app/config" || file["size"] != 4.0 {
		t.Errorf("the file is %+v", file)
	}
	w.run(1, "files", "rm", "app/config", "--if-generation", "1")
	w.run(0, "files", "ls").expectOut("app/\n")
	w.run(0, "files", "ls", "app").expectOut("app/config")
	w.run(0, "files", "acl", "app/config", "--write", "editors").expectOut("editors")
	w.run(0, "files", "acl", "app/config").expectOut("editors")

	watching := w.start("files", "watch", "app", "-o", "json")
	await(t, "an event", func() bool {
		w.run(0, "files", "put", "app/other", w.path("one"))
		w.run(0, "files", "rm", "app/other")
		return strings.Contains(watching.out.String(), "child-added") && strings.Contains(watching.out.String(), "child-removed")
	})
	watching.signal(syscall.SIGINT)
	watching.ends(0)
	watching.expectOut(`"kind":"child-added"`)

	w.run(0, "files", "rm", "app/config", "--if-generation", fmt.Sprintf("%.0f", file["content_generation"]))
	w.run(0, "files", "ls").expectErr("no files")
	w.run(64, "files", "get", "a//b").expectErr("empty path element")
	w.run(64, "--store", "file://"+w.path("locks"), "files", "ls").expectErr("cell://")
	server.Members[0].Kill()
	w.run(69, "files", "ls")
}
