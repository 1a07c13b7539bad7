//go:build darwin || freebsd || dragonfly

package filelock

import (
	"fmt"
	"strings"
	"syscall"
)

// networked begin the names of file systems that are not of this host alone.
var networked = []string{"nfs", "smbfs", "cifs", "afpfs", "webdav", "ftp", "fuse", "macfuse", "osxfuse", "fusefs", "p9fs", "prl_fs", "vmhgfs", "acfs"}

// networkFS says on which file system dir is if locks must not be kept there,
// and returns "" if they may.
func networkFS(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Sprintf("is on a file system that cannot be told (%v)", err)
	}
	var kind strings.Builder
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		kind.WriteByte(byte(c))
	}
	for _, name := range networked {
		if strings.HasPrefix(kind.String(), name) {
			return "is on " + kind.String()
		}
	}
	return ""
}
