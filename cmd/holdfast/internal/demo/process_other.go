//go:build !unix

package demo

import (
	"errors"
	"os"
	"os/exec"
)

// A process cannot be stopped here, so the sale ends with an error when it should pause one.
func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }
func setUp(*exec.Cmd)          {}
