package filelock

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// identity returns what names a directory in every process of the host: the device, and the path on it. A
// directory may be seen under several paths, as by bind mounts or in containers; All must take its locks in
// the same order everywhere. It need not exist yet. Where /proc does not tell, it is the path as it is seen
// here.
func identity(dir string) string {
	there := nearest(dir)
	const pathOnly = 0x200000 // O_PATH, which package syscall lacks: the directory need not be readable
	fd, err := syscall.Open(there, pathOnly|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return dir
	}
	defer closeFD(fd)
	info, err1 := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	_, rest, ok := bytes.Cut(info, []byte("mnt_id:"))
	id := bytes.Fields(rest)
	if err1 != nil || err2 != nil || !ok || len(id) == 0 {
		return dir
	}
	for line := range strings.Lines(string(mounts)) {
		// ID, parent's ID, device, path on the device, path here: see proc_pid_mountinfo(5).
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != string(id[0]) {
			continue
		}
		below, err := filepath.Rel(mountPath(f[4]), dir)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			break
		}
		return fmt.Sprintf("%s:%s", f[2], filepath.Join(mountPath(f[3]), below))
	}
	return dir
}

// mountPath undoes the escapes of mountinfo: three octal digits.
func mountPath(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
