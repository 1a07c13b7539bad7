package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// everyCall calls a function with each call of the API.
func everyCall(do func(path string, m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("holdfast.cell.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				do(fmt.Sprintf("/%s/%s", s.FullName(), m.Name()), m)
			}
		}
		return true
	})
}

// need is what a call needs.
type need int

const (
	anyone        need = iota + 1 // who is known
	reads                         // the right to read the name
	writes                        // to write it
	breaks                        // to administer it
	wholeCell                     // to administer all names
	ownSession                    // the session only
	sessionReads                  // and the right to read
	sessionWrites                 // and the right to write
)

// needs are what all calls need, with a request of each that is about the name a/x.
var needs = map[string]struct {
	need need
	body string
}{
	"Sessions/Open":      {anyone, `{}`},
	"Sessions/KeepAlive": {ownSession, `{"session": "SESSION", "now": true}`},
	"Sessions/Close":     {ownSession, `{"session": "SESSION"}`},
	"Sessions/List":      {wholeCell, `{}`},
	"Sessions/Kill":      {wholeCell, `{"id": "4000000000000000"}`},

	"Locks/Acquire":        {sessionWrites, `{"session": "SESSION", "name": "a/x"}`},
	"Locks/Release":        {ownSession, `{"session": "SESSION", "locks": [{"name": "a/x"}]}`},
	"Locks/Downgrade":      {ownSession, `{"session": "SESSION", "name": "a/x"}`},
	"Locks/SetNote":        {ownSession, `{"session": "SESSION", "name": "a/x"}`},
	"Locks/Break":          {breaks, `{"name": "a/x", "token": 1}`},
	"Locks/CheckSequencer": {reads, `{"sequencer": "SEQUENCER"}`},
	"Locks/Inspect":        {reads, `{"name": "a/x"}`},
	"Locks/List":           {anyone, `{}`},

	"Files/Get":     {reads, `{"path": "a/x"}`},
	"Files/Stat":    {reads, `{"path": "a/x"}`},
	"Files/Put":     {writes, `{"path": "a/x", "contents": "eA=="}`},
	"Files/Delete":  {writes, `{"path": "a/x"}`},
	"Files/ReadDir": {reads, `{"path": "a"}`},
	"Files/SetACL":  {breaks, `{"path": "a/x"}`},
	"Files/Watch":   {sessionReads, `{"session": "SESSION", "path": "a/x", "kinds": [1]}`},

	"Cell/Status": {anyone, `{}`},
	"Cell/Add":    {wholeCell, `{"peer_url": "http://127.0.0.1:1"}`},
	"Cell/Remove": {wholeCell, `{"member": "nobody"}`},
	"Cell/Backup": {wholeCell, `{}`},
}

// answer is the code and the reason of the error that a call was answered with; "": it was not an error.
type answer struct {
	code, reason string
}

// call makes a call by JSON, and returns how it was answered.
func call(t *testing.T, m *Member, path string, streams bool, token, body string, header http.Header) answer {
	t.Helper()
	kind, sent := "application/json", []byte(body)
	if streams {
		kind = "application/connect+json"
		sent = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+m.Addr()+path, bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Content-Type", kind)
	says{token}.say(r.Header)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	type problem struct {
		Code    string
		Details []struct{ Debug struct{ Reason string } }
	}
	var failed problem
	if streams {
		var last struct{ Error problem }
		if i := bytes.LastIndex(text, []byte{2, 0, 0}); i >= 0 {
			json.Unmarshal(text[i+5:], &last)
		}
		failed = last.Error
	} else if resp.StatusCode != http.StatusOK {
		if err := json.Unmarshal(text, &failed); err != nil || failed.Code == "" {
			t.Fatalf("%s: %s: %s", path, resp.Status, text)
		}
	}
	a := answer{code: failed.Code}
	if len(failed.Details) > 0 {
		a.reason = strings.TrimPrefix(failed.Details[0].Debug.Reason, "REASON_")
	}
	return a
}

// role is somebody who makes calls.
type role struct {
	name, token        string
	read, write, admin bool // of a
	cell               bool
}

func (r *role) may(n need) bool {
	switch n {
	case anyone, ownSession:
		return true
	case reads, sessionReads:
		return r.read
	case writes, sessionWrites:
		return r.write
	case breaks:
		return r.admin
	case wholeCell:
		return r.cell
	}
	return false
}

// TestEveryCall makes every call of the API in every role. A call that is new fails here until it has a rule.
func TestEveryCall(t *testing.T) {
	p := newPeople(t)
	roles := []*role{
		{name: "elsewhere", token: p.add(t, "elsewhere", grant{"b", toAdminister}, grant{"ab", toAdminister}, grant{"a/x/y", toAdminister})},
		{name: "nothing", token: p.add(t, "nothing")},
		{name: "reader", token: p.add(t, "reader", grant{"a", toRead}), read: true},
		{name: "writer", token: p.add(t, "writer", grant{"a", toWrite}), read: true, write: true},
		{name: "admin", token: p.add(t, "admin", grant{"b", toRead}, grant{"a", toAdminister}), read: true, write: true, admin: true},
		{name: "cell", token: p.add(t, "cell", grant{"", toAdminister}), read: true, write: true, admin: true, cell: true},
	}
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	root := dialAs(http.DefaultClient, "http://"+m.Addr(), roles[5].token)
	holder := root.open(t, 10*time.Minute)
	sequencer := root.take(t, holder, "a/x", func(r *cellv1.AcquireRequest) { r.Request = "own" }).Sequencer
	seen := map[string]bool{}
	everyCall(func(path string, d protoreflect.MethodDescriptor) {
		name := strings.TrimPrefix(path, "/holdfast.cell.v1.")
		n, ok := needs[name]
		seen[name] = true
		if !ok {
			t.Errorf("%s has no rule: decide who may make it, in the call itself and here", name)
			return
		}
		body := strings.ReplaceAll(n.body, "SEQUENCER", sequencer)
		if got := call(t, m, path, d.IsStreamingServer(), "", body, nil); got != (answer{"unauthenticated", "UNKNOWN_CALLER"}) {
			t.Errorf("%s by nobody: %v", name, got)
		}
		withSession := d.Input().Fields().ByName("session") != nil
		for _, r := range roles {
			as := dialAs(http.DefaultClient, "http://"+m.Addr(), r.token)
			own := strings.ReplaceAll(body, "SESSION", as.open(t, 10*time.Minute))
			got := call(t, m, path, d.IsStreamingServer(), r.token, own, nil)
			if may, was := r.may(n.need), got.code == "permission_denied"; may == was || !may && got.reason != "FORBIDDEN" {
				t.Errorf("%s by %s: %v", name, r.name, got)
			}
			if !withSession || r.name == "cell" {
				continue
			}
			stolen := strings.ReplaceAll(body, "SESSION", holder)
			if !strings.Contains(body, "SESSION") { // the session is optional
				stolen = strings.Replace(body, "{", `{"session": "`+holder+`", `, 1)
			}
			got = call(t, m, path, d.IsStreamingServer(), r.token, stolen, nil)
			if got.code != "permission_denied" || r.may(n.need) && got.reason != "NOT_YOURS" {
				t.Errorf("%s by %s with a session of somebody else: %v", name, r.name, got)
			}
		}
	})
	for name := range needs {
		if !seen[name] {
			t.Errorf("there is no call %s", name)
		}
	}
	if l := root.show(t, "a/x"); len(l.Holders) != 1 || l.Holders[0].Session != holder[:16] {
		t.Errorf("the calls of others have changed %v", l)
	}
}

// TestPlaceWithoutRight: a client that waits does not get the lock when its principal may not have it any more. It hears that
// its place is lost.
func TestPlaceWithoutRight(t *testing.T) {
	p := newPeople(t)
	one, two := p.add(t, "one", grant{"", toWrite}), p.add(t, "two", grant{"", toWrite})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	a, b := dialAs(http.DefaultClient, "http://"+m.Addr(), one), dialAs(http.DefaultClient, "http://"+m.Addr(), two)
	holder, waiter := a.open(t, 30*time.Second), b.open(t, 30*time.Second)
	held := a.take(t, holder, "job", nil)
	place, err := b.acquire(t, waiter, "job", func(r *cellv1.AcquireRequest) { r.Queue = true })
	if err != nil {
		t.Fatal(err)
	}
	p.all["two"].Rights = []grant{{"elsewhere", toWrite}}
	p.write(t)
	for cursor := ""; ; {
		r, err := b.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: waiter, Cursor: cursor, Now: true})
		if reasonOf(err) == cellv1.Reason_REASON_UNCERTAIN || connect.CodeOf(err) == connect.CodeCanceled {
			continue // it was under way when the rights changed, or had not begun
		}
		if err != nil {
			t.Fatal(err)
		}
		if cursor = r.Cursor; len(r.Events) > 0 {
			if r.Events[0].GetLost().GetRevision() != place.Revision {
				t.Errorf("its client is told %v", r.Events)
			}
			break
		}
	}
	a.release(t, holder, &cellv1.Release{Name: "job", Token: held.Token})
	if l := a.show(t, "job"); len(l.Holders)+len(l.Waiters) > 0 {
		t.Errorf("the name has %v", l)
	}
}

// TestACL: the ACL of the nearest node narrows what the list of principals says. Who writes lists must administer.
func TestACL(t *testing.T) {
	p := newPeople(t)
	admin := p.add(t, "admin", grant{"", toAdminister})
	one, two, outside := p.add(t, "one", grant{"a", toAdminister}), p.add(t, "two", grant{"a", toWrite}), p.add(t, "outside", grant{"b", toWrite})
	lists := p.add(t, "lists", grant{"", toWrite})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	as := func(token string) api { return dialAs(http.DefaultClient, "http://"+m.Addr(), token) }
	root := as(admin)
	root.mustWrite(t, "a", "")
	root.mustWrite(t, "acl/few", "one\noutside\n")
	if _, err := as(lists).files.Put(t.Context(), &cellv1.PutRequest{Path: "acl/few", Contents: []byte("lists")}); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
		t.Errorf("somebody who does not administer writes a list: %v", err)
	}
	setACL := func(token, path string, a *cellv1.ACL) error {
		_, err := as(token).files.SetACL(t.Context(), &cellv1.SetACLRequest{Path: path, Acl: a})
		return err
	}
	get := func(token, path string) error {
		_, err := as(token).files.Get(t.Context(), &cellv1.GetRequest{Path: path})
		return err
	}
	lock := func(token, name string) error {
		_, err := as(token).acquire(t, as(token).open(t, 30*time.Second), name, func(m *cellv1.AcquireRequest) { m.Request = "r" })
		return err
	}
	write := func(token, path string) error {
		_, err := as(token).files.Put(t.Context(), &cellv1.PutRequest{Path: path})
		return err
	}
	expect := func(what string, err error, want cellv1.Reason) {
		t.Helper()
		if reasonOf(err) != want || want == 0 && err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	const forbidden, fine = cellv1.Reason_REASON_FORBIDDEN, cellv1.Reason_REASON_UNSPECIFIED
	expect("before: two writes", write(two, "a/x"), fine)
	expect("one narrows", setACL(one, "a", &cellv1.ACL{Read: "few", Write: "few", Change: "few"}), fine)
	expect("two does not change rights", setACL(two, "a", &cellv1.ACL{}), forbidden)
	expect("two reads", get(two, "a"), forbidden)
	expect("two locks what is below", lock(two, "a/lock"), forbidden)
	expect("one locks what is below", lock(one, "a/lock"), fine)
	expect("a node that was made before has what it had", get(two, "a/x"), fine)
	expect("one makes a node", write(one, "a/y"), fine)
	expect("which has the rights of the one above", get(two, "a/y"), forbidden)
	expect("outside is listed, but has no right by the principals", get(outside, "a"), forbidden)
	root.mustWrite(t, "acl/few", "two")
	expect("the list has changed", get(two, "a/y"), fine)
	expect("also for the one that it had", get(one, "a/y"), forbidden)
	if _, err := root.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "acl/few"}); err != nil {
		t.Fatal(err)
	}
	expect("a list that is not there has nobody", get(two, "a/y"), forbidden)
	expect("who administers the cell is not locked out", setACL(admin, "a", &cellv1.ACL{}), fine)
	expect("and sets it right", get(two, "a"), fine)
}
