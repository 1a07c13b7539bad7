//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// CheckDir returns what is wrong with a directory as a directory of locks, each in a
// sentence; nothing, if it is fine. It is CheckPlace, and checks whether the directory
// is in use for something else. Open refuses what would break the locks; the rest is
// for people to judge.
func CheckDir(dir string) []string {
	found := CheckPlace(dir)
	if info, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !info.IsDir() || syscall.Access(dir, 7) != nil {
		return found // it is to be made, or it has been said why it is of no use
	}
	if err := checkOurs(dir); err != nil {
		found = append(found, err.Error())
	}
	return found
}

// CheckPlace returns what is wrong with a directory as a place for files with locks in
// them, such as an SQLite database, each in a sentence. It changes nothing, and looks
// at the nearest directory above where dir does not exist. On NetBSD and OpenBSD it
// cannot tell the file system.
func CheckPlace(dir string) []string {
	if !filepath.IsAbs(dir) {
		return []string{dir + " is relative: every process must mean the same directory"}
	}
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
		found = append(found, fmt.Sprintf("%s cannot be used by this process: %v: %s", dir, err, whose(dir)))
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
