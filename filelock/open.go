//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// opened are the stores of this process. Clients of one directory share one,
// under whatever path they opened it.
var opened struct {
	sync.Mutex
	m map[string]*store
}

func open(ctx context.Context, o Options) (driver.Driver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkClock(); err != nil {
		return nil, err
	}
	dir, err := makeDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if problem := networkFS(dir); problem != "" {
		return nil, fmt.Errorf("%s %s: locks need a local file system", dir, problem)
	}
	opened.Lock()
	defer opened.Unlock()
	s := opened.m[dir]
	if s == nil {
		if s, err = newStore(dir, o.Clock); err != nil {
			return nil, err
		}
		if opened.m == nil {
			opened.m = map[string]*store{}
		}
		opened.m[dir] = s
	}
	s.refs++
	c, err := newClient(s, o.Clock)
	if err != nil {
		s.unref()
		return nil, err
	}
	c.cleanUp()
	return c, nil
}

// makeDir makes the directory and returns it without symbolic links.
func makeDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", explain(err, "", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", explain(err, "", dir)
	}
	return real, nil
}

func newStore(dir string, clock driver.Clock) (*store, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, explain(err, "", dir)
	}
	s := &store{
		dir: dir, names: filepath.Join(dir, "names"), clients: filepath.Join(dir, "clients"),
		perm: info.Mode().Perm() & 0o666,
		caps: driver.Caps{
			Store:   "file://" + dir,
			Ops:     driver.OpQueue | driver.OpInspect | driver.OpBreak | driver.OpDowngrade | driver.OpAnnotate,
			Fencing: true, Shared: true, Slots: true, Fair: true,
			MinTTL: 10 * time.Millisecond, Poll: poll, TokenBlock: tokenBlock,
			Guarantees: guarantees,
		},
	}
	for _, sub := range []string{s.names, s.clients} {
		err := os.Mkdir(sub, 0o700)
		if err == nil {
			err = os.Chmod(sub, info.Mode().Perm())
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, explain(err, "", sub)
		}
	}
	lock := filepath.Join(dir, "lock")
	if s.paths.fd, err = openFD(lock, os.O_RDWR, 0); errors.Is(err, fs.ErrNotExist) {
		s.paths.fd, err = openFD(lock, os.O_RDWR|os.O_CREATE, s.perm)
	}
	if err != nil {
		return nil, explain(err, "", lock)
	}
	if err := s.begin(storeTime(clock.Now())); err != nil {
		closeFD(s.paths.fd)
		return nil, err
	}
	return s, nil
}

// close ends the use by one client.
func (s *store) close() error {
	opened.Lock()
	defer opened.Unlock()
	s.unref()
	return nil
}

// unref expects opened to be locked.
func (s *store) unref() {
	s.refs--
	if s.refs == 0 {
		delete(opened.m, s.dir)
		for i := range s.stripes {
			s.stripes[i].drop()
		}
		closeFD(s.paths.fd)
	}
}
