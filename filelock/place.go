//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// place are the open directories of a store. Each part is nil as long as it does not exist.
type place struct {
	top     *folder
	names   *folder // the record files
	clients *folder // a file per client, see life

	mu   sync.Mutex
	seen map[string]time.Time // when clients were last found alive
}

// The entries of the directory. Their names begin with ours.
const (
	ours        = "holdfast-"
	namesName   = ours + "names"
	clientsName = ours + "clients"
	lockName    = ours + "lock" // see lockPaths
	bootPrefix  = ours + "boot-"
)

func (p *place) close() {
	for _, d := range []*folder{p.top, p.names, p.clients} {
		if d != nil {
			d.close()
		}
	}
}

// openPlace opens what there is of the directories, if they are ours, and changes nothing. With create
// it makes what is missing. While it may not enter them it asks again for a moment: another user may be
// making them just now, and has not given them their group and mode.
func openPlace(ctx context.Context, dir string, create bool) (*place, error) {
	const settling = 500 * time.Millisecond
	for start := time.Now(); ; {
		p := &place{}
		err := p.open(dir, create)
		if err == nil {
			return p, nil
		}
		p.close()
		if !errors.Is(err, fs.ErrPermission) || time.Since(start) > settling {
			return nil, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *place) open(dir string, create bool) (err error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return explain(err, "", dir)
		}
	}
	if p.top, err = openFolder(nil, dir); errors.Is(err, fs.ErrNotExist) && !create {
		return nil
	} else if err != nil {
		return explain(err, "", dir)
	}
	if err := p.top.checkOurs(); err != nil {
		return err
	}
	if create {
		err = errors.Join(p.top.makeSub(namesName), p.top.makeSub(clientsName)) // in this order: see checkOurs
	}
	if err == nil {
		p.names, err = openFolder(p.top, namesName)
	}
	if err == nil {
		p.clients, err = openFolder(p.top, clientsName)
	}
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil
	}
	return explain(err, "", dir)
}

// makeSub makes a directory below d for those who may write in d, and makes an existing one so if it is
// open to others.
func (d *folder) makeSub(name string) error {
	if err := d.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	below, err := openFolder(d, name)
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

// errNotOurs says that a directory is in use for something else.
var errNotOurs = errors.New("not a directory of locks")

// checkOurs returns an error for a directory that is in use for something else: it has no folder of the
// records, and is not empty. Ours may have lost that folder and be left with others of ours: a cleaner has
// deleted what was old.
func (d *folder) checkOurs() error {
	names, err := d.names() // first: another process makes the folder before the rest
	if err != nil {
		return explain(err, "", d.path)
	}
	if st, err := d.lstat(namesName); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return nil
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ours) {
			return fmt.Errorf("%s is %w: %q in it is %w; name an empty directory, or one that does not exist, or move away what is not Holdfast's",
				d.path, errNotOurs, name, errForeign)
		}
	}
	return nil
}

// Nothing is deleted that is not provably ours, not even among our files.

// proveRecord returns an error unless a file among the records is provably ours: a record, the file that
// one was moved from, or what a power cut has left of one. The name of a temporary file is proof enough.
func (d *folder) proveRecord(name string) error {
	if !strings.HasSuffix(strings.TrimSuffix(name, oldSuffix), suffix) {
		return errForeign
	}
	return d.proveContent(name)
}

// proveContent returns an error unless a file begins as all texts of ours do, or is blank.
func (d *folder) proveContent(name string) error {
	content, err := d.read(name)
	if err == nil && !blank(content) && !bytes.HasPrefix(content, []byte(magic)) {
		err = errForeign
	}
	return err
}

// proveLife returns an error unless a file among those of the clients is provably ours.
func (d *folder) proveLife(name string) error {
	st, err := d.lstat(name)
	if err == nil && (!validID(name) || !isLife(st)) {
		err = errForeign
	}
	return err
}

// blank reports whether a file holds nothing: it is empty or, as a power cut may leave it, all zeros.
func blank(content []byte) bool { return len(bytes.Trim(content, "\x00")) == 0 }
