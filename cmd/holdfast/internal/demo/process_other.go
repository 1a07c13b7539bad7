//go:build !unix

package demo

import (
	"errors"
	"os"
	"os/exec"
)

// canPause says whether a process can be stopped and continued here.
const canPause = false

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }

func setUp(*exec.Cmd) {}
