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
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// opened are the stores of this process. Clients of one directory share one,
// under whatever path they opened it.
var opened struct {
	sync.Mutex
	m map[string]*store
}

// open checks whether the directory can be used, and changes nothing: the first
// operation that changes something makes what is missing (attach). So inspecting and
// listing leave no trace.
func open(ctx context.Context, o Options) (driver.Driver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkClock(); err != nil {
		return nil, &OpenError{err}
	}
	dir, err := resolve(o.Dir)
	if err != nil {
		return nil, &OpenError{err}
	}
	if err := checkPlace(dir); err != nil {
		return nil, &OpenError{err}
	}
	opened.Lock()
	defer opened.Unlock()
	s := opened.m[dir]
	if s == nil {
		s = newStore(dir)
		if opened.m == nil {
			opened.m = map[string]*store{}
		}
		opened.m[dir] = s
	}
	s.refs++
	if _, err := patiently(ctx, s.view); err != nil {
		s.unref()
		return nil, &OpenError{err}
	}
	return newClient(s, o.Clock), nil
}

// resolve returns a directory's path without symbolic links. It need not exist
// yet.
func resolve(dir string) (string, error) {
	rest := ""
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return "", explain(err, "", at)
		}
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("%s is a symbolic link to what does not exist", at)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// checkPlace returns an error if locks cannot be kept in a directory, or none can
// be made there.
func checkPlace(dir string) error {
	there := nearest(dir)
	if problem := networkFS(there); problem != "" {
		return fmt.Errorf("%s %s: locks need a local file system", there, problem)
	}
	info, err := os.Stat(there)
	if err != nil {
		return explain(err, "", there)
	}
	if !info.IsDir() {
		return explain(syscall.ENOTDIR, "", there)
	}
	// The system asks for the real user; where that is another one, opening tells.
	if os.Getuid() == os.Geteuid() {
		return explain(syscall.Access(there, 7), "", there)
	}
	return nil
}

// nearest returns the directory, or else the nearest one above that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func newStore(dir string) *store {
	return &store{
		dir:       dir,
		attaching: make(chan struct{}, 1),
		caps: driver.Caps{
			Store:   "file://" + identity(dir),
			Ops:     driver.OpQueue | driver.OpInspect | driver.OpBreak | driver.OpDowngrade | driver.OpAnnotate,
			Fencing: true, Shared: true, Slots: true, Fair: true,
			MinTTL: 10 * time.Millisecond, Poll: poll, TokenBlock: tokenBlock,
			Guarantees: guarantees,
		},
	}
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
	if s.refs > 0 {
		return
	}
	delete(opened.m, s.dir)
	for i := range s.stripes {
		s.stripes[i].drop()
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	s.outdated()
	for _, p := range s.stale {
		p.close()
	}
	if s.attached.Load() {
		closeFD(s.paths.fd)
	}
}
