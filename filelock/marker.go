//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// A directory is used only if it is this package's: it has the marker, or it is
// empty and gets one. Suppose somebody names a directory that has a folder
// "names" full of other things: without the marker they would be taken for
// records, and deleted as damaged ones.
const (
	markerName = "holdfast"
	markerText = "holdfast1 locks\n" +
		"Holdfast keeps locks in this directory. While they are in use, change and delete nothing here.\n"
)

// errNotOurs says that a directory is in use for something else.
var errNotOurs = errors.New("not a directory of locks")

// marked reports whether the directory has the marker. Where it has none,
// everything in it must be provably ours: it is empty, being set up by another
// process, or from a release that made no marker.
func (d *folder) marked() (bool, error) {
	content, err := d.read(markerName)
	switch {
	case err == nil && string(content) == markerText:
		return true, nil
	case err == nil && !blank(content):
		return false, d.foreign(markerName, errForeign)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, d.foreign(markerName, err)
	}
	names, err := d.names()
	if err != nil {
		return false, explain(err, "", d.path)
	}
	var rest string
	for _, name := range names {
		if err := d.proveTop(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d.markedMeanwhile(name, err)
		}
		if name != markerName && !isTemporary(name) {
			rest = name
		}
	}
	if rest == "" {
		return false, nil
	}
	// Empty files and folders of the right names prove nothing. But where nothing else is left, a cleaner has
	// deleted our files, or somebody has made the folders for us: nothing of others can be locked or deleted.
	if !slices.ContainsFunc(names, func(name string) bool { return name != "names" && name != "clients" && !isTemporary(name) }) {
		return false, nil
	}
	if content, err := d.read(bootName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, d.foreign(bootName, err)
	} else if !ownText(content) {
		return d.markedMeanwhile(rest, errForeign)
	}
	return false, nil
}

// markedMeanwhile checks for the marker once more, which another process may have
// made meanwhile: it makes the marker first and the rest after it. Without it
// something is not provably ours, which is the error.
func (d *folder) markedMeanwhile(name string, err error) (bool, error) {
	if content, err := d.read(markerName); err == nil && string(content) == markerText {
		return true, nil
	}
	return false, d.foreign(name, err)
}

// foreign is the error that something in a directory is not ours.
func (d *folder) foreign(name string, err error) error {
	if errors.Is(err, errNotOurs) {
		return err
	}
	if !errors.Is(err, errForeign) && !errors.Is(err, errDamaged) {
		return explain(err, "", d.at(name))
	}
	return fmt.Errorf("%s is %w: %q in it is %w; name an empty directory, or one that does not exist, or move away what is not Holdfast's",
		d.path, errNotOurs, name, err)
}

// mark makes the marker. A blank one was torn by a power cut.
func (d *folder) mark() error {
	if content, err := d.read(markerName); err == nil && blank(content) {
		if err := d.root.Remove(markerName); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return d.publish(markerName, []byte(markerText), true)
}

// proveTop returns an error unless an entry of the directory is provably ours.
func (d *folder) proveTop(name string) error {
	switch name {
	case "names", "clients":
		below, err := d.sub(name)
		if errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: it is no directory", errForeign)
		}
		if err != nil {
			return err
		}
		defer below.close()
		prove := below.proveRecord
		if name == "clients" {
			prove = below.proveLife
		}
		entries, err := below.names()
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := prove(entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return d.foreign(name+"/"+entry, err)
			}
		}
		return nil
	case lockName, bootingName, markerName, bootName:
		content, err := d.read(name)
		if err != nil || blank(content) || name == bootName && ownText(content) {
			return err
		}
		return errForeign
	}
	return d.proveTemporary(name)
}

// proveTemporary returns an error unless a file is provably one of temporary's.
func (d *folder) proveTemporary(name string) error {
	if !isTemporary(name) {
		return errForeign
	}
	content, err := d.read(name)
	if err == nil && !blank(content) && !ownText(content) {
		err = errForeign
	}
	return err
}

// proveRecord returns an error unless a file among the records is provably ours:
// a record, or what a power cut has left of one.
func (d *folder) proveRecord(name string) error {
	if isTemporary(name) {
		return d.proveTemporary(name)
	}
	record := strings.TrimSuffix(name, oldSuffix)
	if _, err := nameOf(record); err != nil && err != errHashed {
		return errForeign
	}
	content, err := d.read(name)
	if err == nil && !blank(content) && !ownText(content) {
		err = errForeign
	}
	return err
}

// proveLife returns an error unless a file among those of the clients is
// provably ours.
func (d *folder) proveLife(name string) error {
	st, err := d.lstat(name)
	if err == nil && (!validID(strings.TrimSuffix(name, newSuffix)) || !isLife(st)) {
		err = errForeign
	}
	return err
}

// read returns what a file of ours begins with.
func (d *folder) read(name string) ([]byte, error) {
	fd, st, err := d.openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer closeFD(fd)
	b := make([]byte, min(st.Size, 1<<16))
	n, err := pread(fd, b, 0)
	if err == nil && int64(n) < st.Size && blank(b[:n]) {
		err = errForeign // too long for what was torn
	}
	return b[:n], err
}

// ownText reports whether a file begins as all texts of ours do.
func ownText(content []byte) bool { return bytes.HasPrefix(content, []byte(magic)) }

// blank reports whether a file holds nothing: it is empty or, as a power cut may
// leave it, all zeros.
func blank(content []byte) bool { return len(bytes.Trim(content, "\x00")) == 0 }
