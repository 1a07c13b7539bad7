package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// sequencerHeader is the header of a call that is to be done only while a lock is held.
const sequencerHeader = "Holdfast-Sequencer"

// gate is what every request comes through that is not about the member's health.
type gate struct {
	front  *front
	next   http.Handler
	errors *connect.ErrorWriter
	local  bool // everybody is admitted, because nobody comes from another host
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.local && !storeurl.Loopback(r.Host) {
		// A browser on this host may show a page of evil.example, which has just become a name of this
		// host. Without this check the page could call.
		http.Error(w, "the member is asked by a name that is not of this host", http.StatusMisdirectedRequest)
		return
	}
	call, end, err := g.admit(w, r)
	if err == nil {
		defer end()
		g.next.ServeHTTP(w, call)
	} else if g.errors.IsSupported(r) { // in the protocol that the caller speaks
		g.errors.Write(w, r, err)
	} else {
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
}

// admit returns a call as it may be made, until end is called, or says why it must not be made.
func (g *gate) admit(w http.ResponseWriter, r *http.Request) (call *http.Request, end func(), err error) {
	who, expires, err := g.front.guard.identify(r)
	if err != nil {
		g.front.log.Debug("a caller is not known", "from", r.RemoteAddr, "call", r.URL.Path)
		return nil, nil, err
	}
	if err := who.admits(laneOf(r.URL.Path)); err != nil {
		return nil, nil, err
	}
	ctx, end := begin(r.Context(), who, expires)
	if text := r.Header.Get(sequencerHeader); text != "" {
		s, err := g.front.checkSequencer(ctx, text)
		if err != nil {
			end()
			return nil, nil, err
		}
		ctx = context.WithValue(ctx, sequencerKey{}, s)
	}
	if r.URL.Path == cellv1connect.CellBackupProcedure { // it takes as long as it takes
		http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
	return r.WithContext(ctx), end, nil
}

// lane says how a call is admitted.
type lane uint8

const (
	ordinary  lane = iota // as often as the principal may
	operating             // the same, for those who administer the cell
	renewal               // as ordinary, but other calls take nothing from it
)

// lanes are the paths that are not ordinary. What a principal may do with which name the calls themselves ask:
// TestEveryCall fails for a call that is new until somebody has thought about it.
var lanes = map[string]lane{
	cellv1connect.SessionsKeepAliveProcedure: renewal,
	cellv1connect.SessionsCloseProcedure:     renewal,
	cellv1connect.LocksReleaseProcedure:      renewal,
	cellv1connect.LocksDowngradeProcedure:    renewal,

	cellv1connect.SessionsListProcedure: operating,
	cellv1connect.SessionsKillProcedure: operating,
	cellv1connect.CellAddProcedure:      operating,
	cellv1connect.CellRemoveProcedure:   operating,
	cellv1connect.CellBackupProcedure:   operating,
}

// laneOf returns how a request of a path is admitted. The console shows all names.
func laneOf(path string) lane {
	if path == "/" || strings.HasPrefix(path, consolePaths) {
		return operating
	}
	return lanes[path]
}

// mostListed is how much one call lists at most, and maxReleases how many locks one call gives back.
const (
	mostListed  = 1000
	maxReleases = 1000
)

// bound is what a field may be: a number, a duration, or the length of a text or a list; and what a text says.
type bound struct {
	least, most int64
	text        func(string) error // instead of the length
}

// bounds are those of the fields of requests, by their names, in whichever message they stand.
var bounds = map[string]bound{
	"name": {text: driver.CheckName}, "path": {text: driver.CheckName}, "ReadDirRequest.path": {most: 512},
	"read": {text: checkList}, "write": {text: checkList}, "change": {text: checkList},
	"id":       {text: only(isSessionID, "is no session's: see the list of sessions")},
	"peer_url": {text: only(isPeerURL, "is none: https://host:port is right")},
	"request":  {text: only(isRequestID, "is not allowed: at most 64 letters, digits, dots, dashes and underscores are")},
	"nonce":    {most: 64}, "cursor": {most: 64}, "note": {most: 1024}, "contents": {most: 256 << 10},
	"limit": {most: mostListed}, "locks": {least: 1, most: maxReleases}, "claims": {most: maxReleases},
	"mode": {most: int64(cellv1.Mode_MODE_SLOT)}, "token": {most: table.MaxToken}, "tokens": {most: math.MaxInt32},
	"BreakRequest.token": {least: math.MinInt64, most: math.MaxInt64}, // nobody holds by a token that cannot be
	"ttl":                {most: int64(24 * time.Hour)}, "lock_delay": {most: int64(10 * time.Minute)}, "min_hold": {most: int64(24 * time.Hour)},
	"wait": {most: int64(time.Minute)}, // proxies cut what is silent for longer
}

// check says what is wrong with a request (P10).
func check(m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		v, single := m.Get(f), f.Message() != nil && !f.IsList()
		if single && !m.Has(f) {
			continue
		}
		b, bounded := bounds[string(m.Descriptor().Name())+"."+string(f.Name())]
		if !bounded {
			b, bounded = bounds[string(f.Name())]
		}
		var err error
		switch {
		case bounded:
			err = b.check(v)
		case single:
			err = check(v.Message())
		}
		for j := 0; f.Message() != nil && f.IsList() && err == nil && j < v.List().Len(); j++ {
			err = check(v.List().Get(j).Message())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return nil
}

func (b bound) check(v protoreflect.Value) error {
	n, shown := int64(0), func(n int64) any { return n }
	bytes := func(n int64) any { return fmt.Sprint(n, " bytes") }
	switch x := v.Interface().(type) {
	case string:
		if b.text != nil {
			return b.text(x)
		}
		n, shown = int64(len(x)), bytes
	case []byte:
		n, shown = int64(len(x)), bytes
	case protoreflect.List:
		n = int64(x.Len())
	case protoreflect.EnumNumber:
		n = int64(x)
	case protoreflect.Message:
		d := x.Interface().(*durationpb.Duration)
		n, shown = int64(d.AsDuration()), func(n int64) any { return time.Duration(n) }
		if !d.IsValid() {
			n = -1
		}
	default:
		n = v.Int()
	}
	if n < b.least || n > b.most {
		return fmt.Errorf("%v: between %v and %v are right", shown(n), shown(b.least), shown(b.most))
	}
	return nil
}

func isRequestID(id string) bool { return len(id) <= 64 && strings.Trim(id, nameChars+"_") == "" }

// only returns a check of a text, and what is said of others.
func only(is func(string) bool, others string) func(string) error {
	return func(text string) error {
		if !is(text) {
			return fmt.Errorf("%.80q %s", text, others)
		}
		return nil
	}
}

// checkList checks the name of a list of principals; "": none.
func checkList(list string) error {
	if list == "" {
		return nil
	}
	return driver.CheckName(listsAt + list)
}

// checked refuses what is wrong before a call is made.
func checked(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := check(r.Any().(proto.Message).ProtoReflect()); err != nil {
			return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
		}
		return next(ctx, r)
	}
}

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
