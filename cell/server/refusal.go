package server

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// codes are what the errors of each reason look like to programs that know nothing of reasons.
var codes = map[cellv1.Reason]connect.Code{
	cellv1.Reason_REASON_HELD:         connect.CodeAborted,
	cellv1.Reason_REASON_MISMATCH:     connect.CodeFailedPrecondition,
	cellv1.Reason_REASON_NOT_HELD:     connect.CodeNotFound,
	cellv1.Reason_REASON_BROKEN:       connect.CodeNotFound,
	cellv1.Reason_REASON_SESSION_OVER: connect.CodeFailedPrecondition,
	cellv1.Reason_REASON_NOT_YOURS:    connect.CodePermissionDenied,
	cellv1.Reason_REASON_STALE:        connect.CodeFailedPrecondition,
	cellv1.Reason_REASON_QUOTA:        connect.CodeResourceExhausted,
	cellv1.Reason_REASON_INVALID:      connect.CodeInvalidArgument,
	cellv1.Reason_REASON_UNCERTAIN:    connect.CodeUnavailable,
	cellv1.Reason_REASON_REFUSED:      connect.CodeUnavailable,
	cellv1.Reason_REASON_FORBIDDEN:    connect.CodePermissionDenied,
	cellv1.Reason_REASON_NO_NODE:      connect.CodeNotFound,
	cellv1.Reason_REASON_CHANGED:      connect.CodeAborted,
	cellv1.Reason_REASON_HAS_CHILDREN: connect.CodeFailedPrecondition,

	cellv1.Reason_REASON_UNKNOWN_CALLER: connect.CodeUnauthenticated,
}

// refuse returns the error of a call.
func refuse(reason cellv1.Reason, format string, args ...any) error {
	return problem(&cellv1.Problem{Reason: reason}, format, args...)
}

func problem(p *cellv1.Problem, format string, args ...any) error {
	err := connect.NewError(codes[p.Reason], fmt.Errorf(format, args...))
	if detail, failed := connect.NewErrorDetail(p); failed == nil {
		err.AddDetail(detail)
	}
	return err
}

// held is the error of a request that does not wait for a name.
func held(name string, by *cellv1.HeldBy) error {
	p := &cellv1.Problem{Reason: cellv1.Reason_REASON_HELD, Held: by}
	return problem(p, "%.80q is held", name)
}

var errSessionOver = refuse(cellv1.Reason_REASON_SESSION_OVER, "there is no such session: it has expired, or was closed")

// ofStore returns the error of a call whose request to etcd failed. What etcd may have done all the
// same is uncertain.
func ofStore(ctx context.Context, err error) error {
	var known *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.Is(err, etcderrors.ErrNoSpace), errors.Is(err, etcderrors.ErrTooManyRequests):
		return refuse(cellv1.Reason_REASON_REFUSED, "the cell takes nothing new at present: %w", err)
	}
	return refuse(cellv1.Reason_REASON_UNCERTAIN, "the cell's members do not agree at present: %w", err)
}

// ended returns the error of a call whose context has ended: its client has gone, or may not make it any more.
func ended(ctx context.Context) error {
	why := context.Cause(ctx)
	if known := new(connect.Error); errors.As(why, &known) {
		return known
	}
	return connect.NewError(connect.CodeCanceled, why)
}
