// Package filelock keeps locks in a directory of this host, shared by any number of processes. It needs
// no server, and is the default of the holdfast command.
//
//	locks, err := holdfast.Open(ctx, "file:///var/lib/orders/locks")
//
// The directory is made, for its owner alone, when a lock is first taken in it. Each name has a file
// there, with a record of its holders and waiters, which one process at a time changes under the file's
// flock. A hold ends at its TTL, by the clock of the host. Each client also has a file of its own and
// keeps the flock of that one; so when its process dies, its holds end at once. When an operator breaks
// a hold, its holder learns of it at its next renewal.
//
// A release wakes one waiter. Each waiter watches the process directly ahead of it in the queue, and the
// first those that hold the name. It notices a death within some 20 to 100 ms, or within a poll if it is
// far behind. Hundreds of processes are served well; with a thousand the machine is busy with waking them.
//
// The directory must be on a local disk or in memory: [CheckDir] says what is wrong with one. It must be
// empty at first, or not exist: a directory with other files in it is refused. The folder
// "holdfast-names" in it says that it is a directory of locks. Opening, inspecting and listing change
// nothing. Do not put it where old files are cleared away, as in /tmp.
//
// Containers may share a directory, also across PID and time namespaces, as long as they run on one
// kernel. Programs that take locks of several directories together (holdfast.All) must see each of them
// under the same path, apart from symbolic links: the paths decide the order.
//
// # Sharing a directory between users
//
// Make the directory yourself, give it the group of its users and mode 0770 (2770, 0775, and 0777 or
// 1777 for everybody, work too). Its files get the directory's group, and only those get rights to them
// that may write in the directory, whatever the umask. This is what each user can do, and what nobody
// can; the name of the test that shows it follows.
//
//   - A user who may not write in the directory cannot open a file in it. So he can neither lock one and
//     stop the others, nor read who holds what, even if he may list the directory (TestReaderCannotLock).
//   - A user who may write in the directory is trusted with its locks, and with nothing else. He can hold
//     and break them, damage a record, which closes its name (TestDamage), and delete one, which its
//     holder learns at the next renewal (TestWriterCanTakeAHold). To share locks with people who are not
//     trusted so far, use a store with a server.
//   - He cannot make the processes of others write, lock or delete anything outside of the directory: not
//     by symbolic or hard links (TestLinksAreNotFollowed), not by what he writes into a record
//     (TestCraftedRecord, FuzzState, FuzzFile), and not by what he puts in the place of the pipe that
//     tells a waiter of its grant (TestOnlyPipesAreWritten).
//   - Nothing is deleted that is not provably Holdfast's, not even among its files
//     (TestNothingForeignIsDeleted); and a directory of something else is refused
//     (TestForeignDirectoryIsRefused).
//   - A user who may rename the directory, or one above it, can put another in its place. Clients of the
//     old one then get errors, and have to be opened again. They do not go on holding what others hold in
//     the new one (TestReplacedDirectory).
//   - In a directory with the sticky bit a user can go on where the process of another was stopped or
//     killed, as in other directories (TestUsersShare).
//
// A process that is stopped or killed at any point, also in the middle of a change, damages no record, and
// closes its name to others for less than a poll (TestKilledWhileWriting, TestCutShort,
// TestStoppedInsideAnOperation). There is one exception: a process that is stopped within the microseconds
// in which it deletes the record of a name that nobody uses closes that name until it goes on or is killed,
// and no other (TestStoppedWhileRemoving). Root can do everything, and a full disk stops changes
// (TestDiskFull).
//
// # Systems
//
// It works on Linux, macOS and the BSDs. Elsewhere, and on file systems of the network, opening fails.
// Outside Linux two things are weaker: the clock of the records is the wall clock, which can be set; and a
// waiter in another process learns of a release by a poll, 50 times a second, where on Linux it is woken.
package filelock

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/holdfastlock/holdfast/driver"
)

func init() { driver.Register("file", openURL) }

// Options say where the locks are.
type Options struct {
	// Dir is the directory, an absolute path. It is made if it does not exist.
	Dir string
	// Clock is the clock that leases are trusted by; nil: driver.HostClock. All
	// processes that use the directory must read the same one.
	Clock driver.Clock
}

// Open opens a client of the directory, which the caller closes. It returns a [driver.OpenError]
// that says what is wrong if the directory cannot be used.
func Open(ctx context.Context, o Options) (driver.Driver, error) {
	switch {
	case o.Dir == "":
		return nil, errors.New("filelock: no directory is given")
	case !filepath.IsAbs(o.Dir):
		return nil, errors.New("filelock: the directory " + strconv.Quote(o.Dir) + " is relative: every process must mean the same one, so give an absolute path")
	}
	if o.Clock == nil {
		o.Clock = driver.HostClock
	}
	return open(ctx, o)
}

// openURL opens the directory of a file:// URL.
func openURL(ctx context.Context, u *url.URL) (driver.Driver, error) {
	if _, err := driver.Params(u, false); err != nil {
		return nil, err
	}
	const like = ": it looks like file:///absolute/directory"
	switch {
	case u.Opaque != "" || u.Host == "" && u.Path == "":
		return nil, errors.New("store URL has no absolute directory" + like)
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("store URL has more than a directory" + like)
	case u.Host != "":
		return nil, errors.New("store URL has a host, " + strconv.Quote(u.Host) + ", or a relative directory" + like + ", with three slashes")
	}
	return Open(ctx, Options{Dir: filepath.FromSlash(u.Path)})
}
