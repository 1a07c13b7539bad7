//go:build soak

package etcdlock

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// stockLock is a lock of etcd's own making.
type stockLock interface {
	lock(ctx context.Context) error
	unlock(t *testing.T)
}

type stockMutex struct{ *concurrency.Mutex }

func (m stockMutex) lock(ctx context.Context) error { return m.Lock(ctx) }
func (m stockMutex) unlock(t *testing.T) {
	if err := m.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// stockService is the v3lock service of the server, by its gateway.
type stockService struct {
	addr, name string
	lease      clientv3.LeaseID
	key        string
}

func (s *stockService) lock(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{
		"name": base64.StdEncoding.EncodeToString([]byte(s.name)), "lease": fmt.Sprint(int64(s.lease)),
	})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.addr+"/v3/lock/lock", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var reply struct{ Key string }
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the lock service says %s: %w", resp.Status, err)
	}
	s.key = reply.Key
	return nil
}

func (s *stockService) unlock(t *testing.T) {
	body := fmt.Sprintf(`{"key": %q}`, s.key)
	resp, err := http.Post("http://"+s.addr+"/v3/lock/unlock", "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the lock service says %s", resp.Status)
	}
}

// TestStock: etcd's own locks and ours keep one another out, both ways, and pass
// the name on to one another.
func TestStock(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for _, prefix := range []string{"", "team/a"} {
		locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs()+"/"+prefix+"?hf.layout=stock")
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		etcd := dialClient(t, server.Addrs())
		defer etcd.Close()
		session, err := concurrency.NewSession(etcd)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		for kind, stock := range map[string]func(name string) stockLock{
			"mutex": func(name string) stockLock { return stockMutex{concurrency.NewMutex(session, name)} },
			"service": func(name string) stockLock {
				return &stockService{addr: server.Addrs(), name: name, lease: session.Lease()}
			},
		} {
			t.Run(kind+" under "+prefix, func(t *testing.T) {
				name := "orders/" + kind
				full := name
				if prefix != "" {
					full = prefix + "/" + name
				}
				keys := func() int64 {
					resp, err := etcd.Get(t.Context(), full+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
					if err != nil {
						t.Fatal(err)
					}
					return resp.Count
				}
				bothWays(t, locks.Mutex(name, nil), stock(full), keys)
				oneAtATime(t, locks, name, stock, full)
			})
		}
	}
}

func bothWays(t *testing.T, ours *holdfast.Lock, theirs stockLock, keys func() int64) {
	if err := theirs.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("P1: what a stock lock holds was granted: %v", err)
	}
	got := make(chan *holdfast.Lease, 1)
	go func() {
		lease, err := ours.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	select {
	case <-got:
		t.Error("P1: what a stock lock holds was granted")
	case <-time.After(50 * time.Millisecond):
	}
	theirs.unlock(t)
	lease := <-got
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := theirs.lock(short); err == nil {
		t.Error("P1: a stock lock got what ours holds")
	}
	// The server withdraws the stock lock that has given up a little later. One that asks again
	// before that has the same key, and loses it then.
	for keys() > 1 {
		time.Sleep(time.Millisecond)
	}
	waited := make(chan error, 1)
	go func() { waited <- theirs.lock(t.Context()) }()
	time.Sleep(20 * time.Millisecond) // let it wait; it must come to it either way
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("P7: a stock lock that waits for ours: %v", err)
	}
	theirs.unlock(t)
}

// oneAtATime: both kinds want one name all the time.
func oneAtATime(t *testing.T, locks *holdfast.Client, name string, stock func(string) stockLock, full string) {
	var mu sync.Mutex // held while the name is: TryLock must never fail
	var wg sync.WaitGroup
	enter := func(who string) {
		if !mu.TryLock() {
			t.Errorf("P1: %s got the name beside another", who)
			return
		}
		time.Sleep(time.Millisecond)
		mu.Unlock()
	}
	for range 2 {
		wg.Go(func() {
			for range 10 {
				lease, err := locks.Mutex(name, nil).Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				enter("ours")
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		theirs := stock(full)
		for range 10 {
			if err := theirs.lock(t.Context()); err != nil {
				t.Error(err)
				return
			}
			enter("theirs")
			theirs.unlock(t)
		}
	})
	wg.Wait()
}
