package filelock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// storeTime returns the store's time at an instant of a client's clock:
// CLOCK_BOOTTIME of the host, the same in all of its time namespaces.
func storeTime(i driver.Instant) driver.Instant {
	offset, _ := timeOffset()
	return i.Add(-offset)
}

// checkClock returns an error if the store's time cannot be told.
func checkClock() error {
	_, err := timeOffset()
	return err
}

// timeOffset is by how much CLOCK_BOOTTIME is ahead here of that of the host.
var timeOffset = sync.OnceValues(func() (time.Duration, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // a kernel without time namespaces
	}
	if err != nil {
		return 0, fmt.Errorf("filelock: the time namespace cannot be told: %w", err)
	}
	here, err1 := os.Readlink("/proc/self/ns/time")
	children, err2 := os.Readlink("/proc/self/ns/time_for_children")
	if err1 != nil || err2 != nil || here != children {
		// The offsets shown are those of the children.
		return 0, errors.New("filelock: this process has unshared its time namespace but is not in it, so its clock cannot be compared with that of others: use a child of it")
	}
	return parseOffset(string(text))
})

// parseOffset reads the offset of boottime from /proc/self/timens_offsets, see
// time_namespaces(7).
func parseOffset(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		var seconds, nanoseconds int64
		if n, _ := fmt.Sscanf(line, "boottime %d %d", &seconds, &nanoseconds); n == 2 {
			return time.Duration(seconds)*time.Second + time.Duration(nanoseconds), nil
		}
	}
	return 0, errors.New("filelock: /proc/self/timens_offsets does not tell the offset of boottime")
}

// bootID identifies this boot of the host.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// openAt opens a file that children do not inherit, and that is none behind a
// symbolic link. Beside os.Root it spares what a renewal of thousands of names
// would feel.
func (d *folder) openAt(name string, flags int) (int, error) {
	for {
		fd, err := syscall.Openat(int(d.self.Fd()), name, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// networked are the file systems on which flock or the page cache may end at
// the host's edge, by their numbers in statfs(2) and linux/magic.h.
var networked = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x564c:     "NCP",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x00c36400: "Ceph",
	0x01021997: "9p, a directory of another machine,",
	0x65735546: "FUSE, which may be sshfs, virtiofs or another file system of the network,",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0x786f4256: "a folder shared by VirtualBox",
	0xbacbacbc: "a folder shared by VMware",
	0xaad7aaea: "PanFS",
	0x013111a8: "IBRIX",
}

// networkFS says on which file system dir is if locks must not be kept there,
// and returns "" if they may.
func networkFS(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Sprintf("is on a file system that cannot be told (%v)", err)
	}
	if name, ok := networked[uint32(st.Type)]; ok {
		return fmt.Sprintf("is on %s (file system %#x)", name, uint32(st.Type))
	}
	return ""
}
