package server

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// lane says how a call is admitted.
type lane uint8

const (
	ordinary  lane = iota // as often as the principal may
	operating             // the same, for those who administer the cell
	renewal               // as ordinary, but other calls take nothing from it
	unpaced               // as often as one likes
	open                  // without asking who calls
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

	"/metrics": unpaced,
	"/healthz": open,
	"/readyz":  open,
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
	"id": {text: checkSessionID}, "peer_url": {text: checkPeerURL}, "request": {text: checkRequestID},
	"nonce": {most: 64}, "cursor": {most: 64}, "note": {most: 1024}, "contents": {most: 256 << 10},
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

func checkRequestID(id string) error {
	if other := strings.IndexFunc(id, notInRequestID); other >= 0 || len(id) > 64 {
		return fmt.Errorf("%.80q is not allowed: at most 64 letters, digits, dots, dashes and underscores are", id)
	}
	return nil
}

func notInRequestID(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

func checkSessionID(id string) error {
	if !isSessionID(id) {
		return fmt.Errorf("%.80q is no session's: see the list of sessions", id)
	}
	return nil
}

func checkPeerURL(text string) error {
	if !isPeerURL(text) {
		return fmt.Errorf("%.80q: https://host:port is right", text)
	}
	return nil
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
