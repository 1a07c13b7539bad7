package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/go-sql-driver/mysql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/display"
	"github.com/holdfastlock/holdfast/redislock"
)

// The exit codes. They are an interface: see the help texts. Codes from 64 to 78 are as in
// sysexits.h.
const (
	exitOK          = 0
	exitFailure     = 1   // break: no such hold; doctor: an error was found
	exitWarning     = 2   // doctor --strict
	exitUsage       = 64  // EX_USAGE
	exitUnavailable = 69  // EX_UNAVAILABLE
	exitInternal    = 70  // EX_SOFTWARE: something failed on this host
	exitNotAcquired = 75  // EX_TEMPFAIL
	exitLost        = 76  // the lock was lost or broken while the command ran
	exitCannotRun   = 126 // as in a shell
	exitNotFound    = 127 // as in a shell
	exitSignal      = 128 // plus the signal's number
)

// exitCodes is the table for the help texts.
const exitCodes = `Exit codes:
    0   done
    1   break: there is no such hold (any more); leader: there is none; doctor: an error was found;
        cell, files: the cell refused, or a member that the store URL names is not well
    2   doctor --strict: a warning was found, and no error
   64   wrong usage: a flag, a name, a URL, or something that the store cannot do
   69   the store cannot be reached or does not work
   70   something else failed on this host`

// runExitCodes is the table for run and elect.
const runExitCodes = `Exit codes:
        CMD's own, or 128+n if signal n killed it
   64   wrong usage: a flag, a name, a URL, or something that the store cannot do
   69   the store cannot be reached or does not work
   70   CMD or its guard could not be started
   75   the lock was not acquired (-E changes it)
   76   the lock was lost or broken, or --max-hold was over, while CMD ran
  126   CMD cannot be executed
  127   CMD was not found
  128+n signal n ended the wait for the lock`

// exitError is an error with an exit code. The error is nil if there is no message.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// codeOf returns the exit code of an error, or 0.
func codeOf(err error) int {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	return exitOK
}

// usagef returns an error of wrong usage.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// storeError returns an error of the store.
func storeError(err error) error { return &exitError{exitUnavailable, err} }

// fromOutside reports whether an error comes from the network, the files, a server or a timeout,
// rather than from what the user has typed.
func fromOutside(err error) bool {
	return is[net.Error](err) || is[syscall.Errno](err) || is[*fs.PathError](err) || is[etcdAnswer](err) || is[*connect.Error](err) ||
		is[*redislock.ServerError](err) || is[*driver.OpenError](err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable
}

// etcdAnswer is what a server of etcd has answered: that the password is wrong, for example.
type etcdAnswer interface {
	error
	Code() codes.Code
}

// lastingWords are in errors that no waiting mends, in the words of net, crypto/tls, Redis and package zklock: gRPC and
// scripts keep no more of them.
var lastingWords = []string{
	"no such host", "failed to verify certificate", "ACL failure in script", "not permitted by the node's ACL",
}

// lasting reports whether no waiting mends an error of the store: nobody has the host's name or a certificate that is
// trusted, the credentials are refused, rights are missing, or the directory is of no use. The numbers are those of
// "PostgreSQL Error Codes" and of MySQL's "Server Error Message Reference".
func lasting(err error) bool {
	code := status.Code(err)
	if code == codes.Unknown {
		code = codes.Code(connect.CodeOf(err)) // the same numbers
	}
	if etcd, ok := errors.AsType[etcdAnswer](err); ok {
		code = etcd.Code()
	}
	answer := ""
	if redis, ok := errors.AsType[*redislock.ServerError](err); ok {
		answer = redis.Code()
	} else if postgres, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		answer = postgres.SQLState()
	} else if mariadb, ok := errors.AsType[*mysql.MySQLError](err); ok {
		answer = strconv.Itoa(int(mariadb.Number))
	}
	open, _ := errors.AsType[*driver.OpenError](err)
	return errors.Is(err, fs.ErrPermission) || open != nil && open.Lasting ||
		slices.Contains([]codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument}, code) ||
		slices.Contains([]string{
			"NOAUTH", "WRONGPASS", "NOPERM", "28000", "28P01", "3D000", "42501", "1044", "1045", "1049", "1142", "1698",
		}, answer) ||
		slices.ContainsFunc(lastingWords, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// is reports whether err is of a type, or wraps an error that is.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// checkName refuses a bad name before any I/O (P10).
func checkName(name string) error {
	if err := driver.CheckName(name); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// operationError gives the error of an operation on a store its exit code.
func operationError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, holdfast.ErrUnsupported), errors.Is(err, holdfast.ErrMismatch):
		return usagef("%w", err)
	}
	return storeError(err)
}

// oneLine returns an error's text on one line, without the prefix "holdfast: ", and escaped.
func oneLine(err error) string { return flat(err.Error()) }

func flat(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "holdfast: ")
		if line != "" {
			lines = append(lines, line)
		}
	}
	return display.Escape(strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": "))
}
