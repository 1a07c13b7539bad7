//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
)

// findCommand returns the path of the command's file, before a lock is taken.
func findCommand(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return "", &exitError{exitNotFound, fmt.Errorf("command %q was not found", program)}
	case errors.Is(err, fs.ErrPermission):
		return "", cannotRun(program, "its file needs the permission x")
	}
	return "", cannotRun(program, errors.Unwrap(err).Error())
}

// startError gives the error of starting a command its exit code.
func startError(program string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &exitError{exitInternal, err}
	}
	switch errno {
	case syscall.ENOENT:
		return cannotRun(program, "the interpreter in its first line was not found")
	case syscall.ENOEXEC:
		return cannotRun(program, "it is neither a program for this system "+
			"nor a script with an interpreter in its first line")
	case syscall.EAGAIN, syscall.ENOMEM:
		return &exitError{exitInternal, fmt.Errorf("command %q cannot be started: %w", program, err)}
	}
	return cannotRun(program, errno.Error())
}

func cannotRun(program, why string) error {
	return &exitError{exitCannotRun, fmt.Errorf("command %q cannot be executed: %s", program, why)}
}
