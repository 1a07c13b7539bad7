//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// place are the open directories of a store. Each part is nil as long as it does
// not exist.
type place struct {
	top     *folder
	names   *folder // the record files
	clients *folder // a file per client, see life
}

func (p *place) close() {
	if p == nil {
		return
	}
	for _, d := range []*folder{p.top, p.names, p.clients} {
		if d != nil {
			d.close()
		}
	}
}

// The files of fileLocks: that of the paths, and that of the boot.
const (
	lockName    = "lock"
	bootingName = "booting"
)

// view returns the directories as far as they exist, nil if they do not, and
// changes nothing. It returns an error if they are not ours.
func (s *store) view() (*place, error) {
	if s.attached.Load() {
		return s.place.Load(), nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if p := s.place.Load(); p != nil {
		if p.names.current() && p.clients.current() {
			return p, nil
		}
		// Another directory has the path now, and nobody here holds anything in
		// this one.
		s.outdated()
	}
	p, err := s.openPlace()
	if err != nil || p.names == nil || p.clients == nil {
		p.close()
		return nil, err
	}
	s.place.Store(p)
	return p, nil
}

// outdated has the directories opened again. Operations that use them now go on.
func (s *store) outdated() {
	if p := s.place.Swap(nil); p != nil {
		s.stale = append(s.stale, p)
	}
}

// openPlace opens what there is of the directories, if they are ours.
func (s *store) openPlace() (p *place, err error) {
	p = &place{}
	defer func() {
		if err != nil {
			p.close()
			p = nil
		}
	}()
	if p.top, err = openFolder(s.dir); errors.Is(err, fs.ErrNotExist) {
		return p, nil
	} else if err != nil {
		return p, explain(err, "", s.dir)
	}
	if _, err = p.top.marked(); err != nil {
		return p, err
	}
	for name, below := range map[string]**folder{"names": &p.names, "clients": &p.clients} {
		if *below, err = p.top.sub(name); errors.Is(err, fs.ErrNotExist) {
			err = nil
		} else if err != nil {
			return p, explain(err, "", p.top.at(name))
		}
	}
	return p, nil
}

// attach makes the directory fit for use: it makes what is missing, and brings
// the records to this boot of the host.
func (s *store) attach(ctx context.Context, now driver.Instant) error {
	if s.attached.Load() {
		return nil
	}
	select {
	case s.attaching <- struct{}{}:
		defer func() { <-s.attaching }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.attached.Load() {
		return nil
	}
	if err := checkLimit(); err != nil {
		return err
	}
	p, err := patiently(ctx, s.makePlace)
	if err != nil {
		return err
	}
	if s.paths.fd, err = p.openLock(lockName); err != nil {
		return err
	}
	if err := s.begin(ctx, p, now); err != nil {
		closeFD(s.paths.fd)
		return err
	}
	s.attached.Store(true)
	return nil
}

// checkLimit returns an error if this process may not write a page into a file: it would be
// killed in the middle of the first change of a record.
func checkLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return fmt.Errorf("filelock: the limit of file sizes cannot be told: %w", err)
	}
	if uint64(limit.Cur) < pageSize {
		return fmt.Errorf("filelock: this process may write files of %d bytes only: raise the limit (ulimit -f)", limit.Cur)
	}
	return nil
}

// settling is how long another user's process may take to give what it has made
// its group and mode.
const settling = 500 * time.Millisecond

// patiently asks open for the directories again while it may not enter them:
// another user may be making them just now.
func patiently(ctx context.Context, open func() (*place, error)) (*place, error) {
	for start := time.Now(); ; {
		p, err := open()
		if !errors.Is(err, fs.ErrPermission) || time.Since(start) > settling {
			return p, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// makePlace makes the directories, unless they exist.
func (s *store) makePlace() (*place, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, explain(err, "", s.dir)
	}
	top, err := openFolder(s.dir)
	if err != nil {
		return nil, explain(err, "", s.dir)
	}
	defer top.close()
	marked, err := top.marked()
	if err != nil {
		return nil, err
	}
	if !marked {
		if err := top.mark(); err != nil {
			return nil, explain(err, "", top.at(markerName))
		}
	}
	for _, name := range []string{"names", "clients"} {
		if err := top.makeSub(name); err != nil {
			return nil, explain(err, "", top.at(name))
		}
	}
	s.opening.Lock()
	s.outdated() // modes may be others now
	s.opening.Unlock()
	p, err := s.view()
	if err == nil && (p == nil || p.top.id != top.id) {
		err = fmt.Errorf("%s: %w", s.dir, errReplaced)
	}
	return p, err
}

// makeSub makes a directory below d for those who may write in d, and makes an
// existing one so if it is open to more.
func (d *folder) makeSub(name string) error {
	if err := d.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	below, err := d.sub(name)
	if err != nil {
		return err
	}
	defer below.close()
	var st syscall.Stat_t
	fd := int(below.self.Fd())
	if err := syscall.Fstat(fd, &st); err != nil {
		return err
	}
	want, have := subMode(d.mode), fs.FileMode(st.Mode)&0o777
	switch user := os.Geteuid(); {
	case have == want && (want&0o070 == 0 || want&0o002 != 0 || st.Gid == d.gid):
		return nil
	case user == 0 || user == int(st.Uid):
		return d.give(fd, want)
	case have&^want&0o022 != 0:
		return fmt.Errorf("%w: more users may write in it than in %s: make its mode %v", fs.ErrPermission, d.path, want)
	}
	return nil
}

// openLock opens the file of a fileLock, made if there is none.
func (p *place) openLock(name string) (int, error) {
	for {
		fd, st, err := p.top.openRegular(name, os.O_RDWR)
		if err == nil && st.Size != 0 {
			closeFD(fd)
			err = errForeign // ours are empty
		}
		if err == nil {
			p.top.tighten(fd, fs.FileMode(st.Mode)&0o777)
			return fd, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = p.top.publish(name, nil, false)
		}
		if err != nil {
			return -1, explain(err, "", p.top.at(name))
		}
	}
}
