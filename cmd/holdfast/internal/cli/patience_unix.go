//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"modernc.org/sqlite"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/zklock"
)

// patience says for how long run tries again what a store could not do at the moment. Suppose two
// hundred processes are started together on a server that accepts a hundred connections: half of them
// are refused, and get their turn when the others have ended.
type patience struct {
	none  bool          // -n: nothing is tried again
	wait  time.Duration // -w; 0: it is not given
	until time.Time     // when -w is over; it covers the opening too
}

// patience begins when the command does.
func (f *runFlags) patience() patience {
	return patience{none: f.nonblock, wait: f.wait, until: time.Now().Add(f.wait)}
}

// over reports whether the time of -w is over.
func (p patience) over() bool { return p.wait > 0 && time.Now().After(p.until) }

// unanswered reports whether the time of -w was over before the store said anything, and was shorter than
// an answer may take.
func (p patience) unanswered(err error) bool {
	return p.wait < openWithin && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, holdfast.ErrHeld)
}

// mayRetry reports whether an attempt that failed with err may be followed by another one. A server that
// does not answer, or from which another may take over, is tried again only with -w, because it may be gone.
func (p patience) mayRetry(err error) bool {
	return !p.none && (overloaded(err) || p.wait > 0 && (slow(err) || failingOver(err)))
}

// openPatiently opens the store as open does, but tries again while the store is overloaded: until the
// time of -w is over, or for as long as an opening may take anywhere, if that is longer.
func (a *app) openPatiently(p patience, events holdfast.Events) (*store, error) {
	within := max(p.wait, openWithin)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for pauses := 0; ; pauses++ {
		s, err := a.open(ctx, events)
		if err == nil || !p.mayRetry(err) {
			return s, err
		}
		if pauses == 0 && !a.quiet && term.IsTerminal(int(os.Stderr.Fd())) {
			complain(fmt.Errorf("waiting for the store: %w", err))
		}
		if !pauseUntil(ctx, pauses) {
			return nil, storeError(fmt.Errorf("%w; given up after %v", err, within))
		}
	}
}

// acquirePatiently calls take until it succeeds, but tries again only while the store is overloaded:
// until ctx ends, or for as long as an operation may take if -w is not given.
func (p patience) acquirePatiently(
	ctx context.Context, take func(context.Context) (*holdfast.Lease, error),
) (*holdfast.Lease, error) {
	limit := ctx
	for pauses := 0; ; pauses++ {
		lease, err := take(ctx)
		if err == nil || ctx.Err() != nil || !p.mayRetry(err) {
			return lease, err
		}
		if p.wait == 0 && pauses == 0 {
			var cancel context.CancelFunc
			limit, cancel = context.WithTimeout(ctx, openWithin)
			defer cancel()
		}
		if !pauseUntil(limit, pauses) {
			return nil, err
		}
	}
}

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// pauseUntil makes a pause before the next attempt, and returns false if ctx ends first. The pause
// doubles with the number of those before it, and is random so that a crowd does not try again all at
// once.
func pauseUntil(ctx context.Context, before int) bool {
	d := min(firstPause<<min(before, 10), longestPause)
	select {
	case <-time.After(d/2 + rand.N(d)):
		return true
	case <-ctx.Done():
		return false
	}
}

// slow reports whether a store did not answer in time, or closed the connection instead: Redis does so
// when it has too many, often before its refusal was read.
func slow(err error) bool {
	return timedOut(err) || errors.Is(err, io.EOF)
}

// failingOver reports whether some servers of a store answer, and another may soon take over from the one
// that does not.
func failingOver(err error) bool {
	return errors.Is(err, redislock.ErrFailover) || err != nil && strings.Contains(err.Error(), readOnlyHost)
}

// readOnlyHost is what pgx says of a host that takes no writes, where a URL has several.
const readOnlyHost = "read only connection"

// overloaded reports whether a store, or this host, refuses more connections or requests at present. A
// server that is not there, refuses a password or has no such database is reported at once.
func overloaded(err error) bool {
	var errno syscall.Errno
	var redis *redislock.ServerError
	var postgres *pgconn.PgError
	var maria *mysql.MySQLError
	var lite *sqlite.Error
	switch {
	case errors.Is(err, zklock.ErrHungUp):
		return true
	case errors.As(err, &errno):
		return overloadedHost(errno)
	case errors.As(err, &redis):
		return overloadedRedis(redis.Text)
	case errors.As(err, &postgres):
		return overloadedPostgres(postgres.Code)
	case errors.As(err, &maria):
		return overloadedMySQL(maria.Number)
	case errors.As(err, &lite):
		return overloadedSQLite(lite.Code())
	}
	return overloadedEtcd(err)
}

func overloadedHost(errno syscall.Errno) bool {
	switch errno {
	case syscall.EAGAIN, // the queue of a Unix socket is full
		syscall.ECONNRESET, syscall.EPIPE, // closed with a refusal that was not read
		syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.EMFILE, syscall.ENFILE:
		return true
	}
	return false
}

func overloadedRedis(text string) bool {
	for _, prefix := range []string{"ERR max number of clients", "LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN "} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// overloadedPostgres: see "PostgreSQL Error Codes" in its manual.
func overloadedPostgres(code string) bool {
	switch code {
	case "53000", "53200", "53300", // insufficient resources, out of memory, too many connections
		"57P03",          // cannot connect now: the server starts or stops
		"40001", "40P01", // serialization failure, deadlock
		"55P03": // lock not available
		return true
	}
	return false
}

// overloadedMySQL: see "Server Error Message Reference" in MySQL's manual.
func overloadedMySQL(number uint16) bool {
	switch number {
	case 1040, 1203, 1226, // too many connections, of all, of the user, resources of the user
		1135, 1041, // no thread, no memory
		1205, 1213: // lock wait timeout, deadlock
		return true
	}
	return false
}

// overloadedSQLite: see "Result and Error Codes" on sqlite.org.
func overloadedSQLite(code int) bool {
	const busy, locked = 5, 6
	return code&0xff == busy || code&0xff == locked
}

// overloadedEtcd goes by the text too, because gRPC also says Unavailable of a server that is not there or
// does not agree on TLS.
func overloadedEtcd(err error) bool {
	switch status.Code(err) {
	case codes.ResourceExhausted:
		return true
	case codes.Unavailable:
		return !strings.Contains(err.Error(), "rror while dialing") && !strings.Contains(err.Error(), "tls: ")
	}
	return false
}
