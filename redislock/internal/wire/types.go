// Package wire is the client of a Redis server: requests, pipelined on one connection or two, and
// subscriptions, in version 2 of the protocol.
//
// A client library that pipelines has a goroutine that writes and one that reads. Each request then switches
// goroutines three times, which takes longer than the server needs for it. Here one of the callers that wait
// for replies reads them for all, and one writes for all. A lone caller does both itself, and switches
// nowhere; many callers share their writes and reads.
//
// No request is sent a second time, and each caller returns when its context ends.
package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Command is redislock.Command.
type Command struct {
	Args []string
	Key  string
	Part string
	Life bool
}

// Reply is redislock.Reply.
type Reply struct {
	Value any
	Err   error
}

// ServerError is redislock.ServerError.
type ServerError struct{ Text string }

// Error returns the server's text.
func (e *ServerError) Error() string { return e.Text }

// Code returns the code of the refusal, such as NOAUTH, or ERR if it has none.
func (e *ServerError) Code() string {
	code, _, _ := strings.Cut(e.Text, " ")
	if code == "" || strings.ToUpper(code) != code {
		return "ERR"
	}
	return code
}

// Failed is n replies with an error.
func Failed(n int, err error) []Reply { return slices.Repeat([]Reply{{Err: err}}, n) }

// ErrFailover is redislock.ErrFailover.
var ErrFailover = errors.New("a fail-over may be under way")

// InFailover adds ErrFailover to the error of the network by which a deployment's server cannot be reached.
// It returns other errors as they are.
func InFailover(err error) error {
	errno := syscall.Errno(0)
	switch {
	case !errors.As(err, &errno), errors.Is(err, ErrFailover):
	case errno == syscall.EMFILE, errno == syscall.ENFILE: // this host has no more files: no server is to blame
	default:
		return fmt.Errorf("%w: %w", err, ErrFailover)
	}
	return err
}

// Demoted reports whether one of the replies says that the server is a replica.
func Demoted(replies []Reply) bool { return slices.ContainsFunc(replies, demoted) }

// demoted reports whether a reply says that the server is a replica. A batch replies to each of its
// items, so one of them may say it.
func demoted(r Reply) bool {
	if refused, ok := r.Err.(*ServerError); ok {
		return readOnly(refused.Text)
	}
	items, _ := r.Value.([]any)
	return slices.ContainsFunc(items, func(item any) bool {
		text, ok := item.(string)
		return ok && readOnly(text)
	})
}

// readOnly reports whether an error is that of a write on a replica. Before version 7 that of a script
// has more in front.
func readOnly(text string) bool {
	return strings.HasPrefix(text, "READONLY You can't write") || strings.HasPrefix(text, "MASTERDOWN ") ||
		strings.Contains(text, " -READONLY You can't write")
}
