package testserver

import (
	"errors"
	"os"
	"path/filepath"
)

// workspace returns the root of the repository: the directory of go.work above the working
// directory. A test runs in the directory of its package.
func workspace() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.work above the working directory: run the tests inside the repository")
		}
	}
}
