//go:build soak

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// trio returns the configurations of three members of a new cell.
func trio(t *testing.T) (all []Config) {
	members := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		members[name] = "http://" + l.Addr().String()
		l.Close()
	}
	for name := range members {
		all = append(all, Config{Name: name, Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Members: members})
	}
	return all
}

// TestRestore: a cell that is made of a backup has its permanent nodes and nothing of its sessions, and its
// tokens are larger than those that were granted after the backup. One of a single member may become one
// of three.
func TestRestore(t *testing.T) {
	old := start(t)
	a := dial(old)
	session := a.open(t, 10*time.Second)
	a.mustWrite(t, "app/config", "one")
	kept := a.mustWrite(t, "app/config", "two")
	if _, err := a.write(t, "app/alive", "x", func(r *cellv1.PutRequest) { r.Session = session }); err != nil {
		t.Fatal(err)
	}
	before := a.take(t, session, "held", nil)
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, backUp(t, old), 0o600); err != nil {
		t.Fatal(err)
	}
	a.mustWrite(t, "app/config", "three")
	a.release(t, session, &cellv1.Release{Name: "held", Token: before.Token})
	// The backup knows nothing of this one.
	after := a.take(t, session, "held", func(r *cellv1.AcquireRequest) { r.Request = "second" })

	for what, configs := range map[string][]Config{
		"one member": {{Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0"}}, "three members": trio(t),
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			members := make([]*Member, len(configs))
			errs := make(chan error)
			last, revision := after.Token, int64(0)
			for i, c := range configs {
				var err error
				if revision, err = Restore(c, file, revision); err != nil {
					t.Fatal(err)
				}
				if _, err := Restore(c, file, revision); !errors.Is(err, os.ErrExist) {
					t.Errorf("a second time: %v", err)
				}
				go func() {
					var err error
					members[i], err = startAs(ctx, t, c)
					errs <- err
				}()
			}
			for range configs {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range members {
				a := dial(m)
				if n, contents, err := a.read(t, "app/config"); err != nil || contents != "two" || n.ContentGeneration != kept.ContentGeneration {
					t.Errorf("the node is %q, %v, %v", contents, n, err)
				}
				for fmt.Sprint(a.children(t, "app", 0)) != "[app/config]" { // the ephemeral one goes with its session
					time.Sleep(20 * time.Millisecond)
				}
				if _, err := a.acquire(t, session, "other", nil); reasonOf(err) != cellv1.Reason_REASON_SESSION_OVER {
					t.Errorf("a session of the old cell: %v", err)
				}
				s := a.open(t, 10*time.Second)
				got := a.take(t, s, "held", nil)
				if got.Token <= last {
					t.Errorf("P3: the token %d after %d", got.Token, last)
				}
				last = got.Token
				a.release(t, s, &cellv1.Release{Name: "held", Token: got.Token})
			}
			if again := backUp(t, members[0]); len(again) == 0 {
				t.Error("no backup of the restored cell")
			}
		})
	}
}

// TestBackupLeft: a client may leave in the middle of a backup.
func TestBackupLeft(t *testing.T) {
	m := start(t)
	a := dial(m)
	for i := range 8 {
		a.mustWrite(t, fmt.Sprint("large/", i), strings.Repeat("x", 200<<10))
	}
	c := cellv1connect.NewCellClient(http.DefaultClient, "http://"+m.Addr())
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		stream, err := c.Backup(ctx, &cellv1.BackupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() || stream.Msg().Left == 0 {
			t.Fatalf("the backup is not longer than its first part: %v", stream.Err())
		}
		leave()
		stream.Close()
	}
	if len(backUp(t, m)) < 8*200<<10 {
		t.Error("a backup after those is not whole")
	}
}
