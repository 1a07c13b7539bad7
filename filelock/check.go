//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// CheckDir returns what is wrong with a directory as a place for locks, each in
// a sentence; nothing, if it is fine. It changes nothing, and looks at the
// nearest directory above where dir does not exist. Open refuses what would
// break the locks; the rest is for people to judge. On NetBSD and OpenBSD it
// cannot tell the file system.
func CheckDir(dir string) []string {
	if !filepath.IsAbs(dir) {
		return []string{dir + " is relative: every process must mean the same directory"}
	}
	given := dir
	info, err := os.Stat(dir)
	for os.IsNotExist(err) && dir != "/" {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err != nil {
		return []string{fmt.Sprintf("%s cannot be looked at: %v", dir, err)}
	}
	if !info.IsDir() {
		return []string{dir + " is not a directory"}
	}
	here := dir == given
	var found []string
	if problem := networkFS(dir); problem != "" {
		found = append(found, dir+" "+problem+": flock and the host's clock end at the host, so locks there exclude nobody elsewhere")
	}
	if err := checkClock(); err != nil {
		found = append(found, err.Error())
	}
	if info.Mode().Perm()&0o002 != 0 {
		found = append(found, dir+" can be written by everybody on this host: any user can hold, break or damage the locks")
	}
	if err := syscall.Access(dir, 7); err != nil {
		return append(found, fmt.Sprintf("%s cannot be used by this process: %v: %s", dir, err, whose(dir)))
	}
	if !here {
		return found
	}
	if err := checkOurs(dir); err != nil {
		found = append(found, err.Error())
	}
	return found
}

// checkOurs returns an error if a directory is in use for something else.
func checkOurs(dir string) error {
	real, err := resolve(dir)
	if err != nil {
		return err
	}
	p, err := (&store{dir: real}).openPlace()
	p.close()
	return err
}
