package server

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// cell serves the API of the cell itself.
type cell struct{ *Member }

// Status says what the cell is and how it is.
func (c cell) Status(context.Context, *cellv1.StatusRequest) (*cellv1.StatusResponse, error) {
	s := c.etcd.Server
	r := &cellv1.StatusResponse{
		Cell: s.Cluster().ID().String(), Member: c.config.Name, Version: version(),
		ShortestTtl: durationpb.New(c.front.minTTL), Poll: durationpb.New(c.front.poll),
		Size: s.Backend().Size(), SizeInUse: s.Backend().SizeInUse(), Shortage: *c.front.shortage.Load(),
	}
	leader := types.ID(s.Leader())
	for _, m := range s.Cluster().Members() {
		member := &cellv1.Member{Name: m.Name, Id: m.ID.String(), Learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			member.PeerUrl = m.PeerURLs[0]
		}
		if m.ID == leader {
			r.Leader = m.Name
		}
		r.Members = append(r.Members, member)
	}
	c.front.mirror.mu.Lock()
	defer c.front.mirror.mu.Unlock()
	m := c.front.mirror
	r.Revision, r.Sessions, r.Names, r.Nodes = m.rev, int32(len(m.sessions)), int32(m.names.Len()), int32(m.nodes.Len())
	return r, nil
}

// version is that of the program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// Add makes room for another member. It learns first, and counts once it has caught up: else a member
// that is never started would stop a cell of one for good.
func (c cell) Add(ctx context.Context, r *cellv1.AddRequest) (*cellv1.AddResponse, error) {
	for _, m := range c.etcd.Server.Cluster().Members() {
		if len(m.PeerURLs) > 0 && m.PeerURLs[0] == "unix://"+m.Name {
			return nil, refuse(cellv1.Reason_REASON_REFUSED,
				"the member %s listens to no other: start it again with --member %s=URL, and then add another", m.Name, m.Name)
		}
	}
	members, err := c.change(ctx, func(ctx context.Context) error {
		_, err := c.client.MemberAddAsLearner(ctx, []string{r.PeerUrl})
		return err
	}, "a member was added", "peer", r.PeerUrl)
	return &cellv1.AddResponse{Members: members}, err
}

// Remove takes a member out of the cell.
func (c cell) Remove(ctx context.Context, r *cellv1.RemoveRequest) (*cellv1.RemoveResponse, error) {
	id := uint64(0)
	for _, m := range c.etcd.Server.Cluster().Members() {
		if m.Name != "" && m.Name == r.Member || m.ID.String() == r.Member {
			id = uint64(m.ID)
		}
	}
	if id == 0 {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "member: %.80q is none: see the list of members", r.Member)
	}
	members, err := c.change(ctx, func(ctx context.Context) error {
		_, err := c.client.MemberRemove(ctx, id)
		return err
	}, "a member was removed", "member", r.Member)
	return &cellv1.RemoveResponse{Members: members}, err
}

// changeWithin is how long a change of the members may take. etcd refuses it until all members that count have
// been connected for five seconds.
const changeWithin = 10 * time.Second

// change changes the members, notes what was done, and returns them.
func (c cell) change(ctx context.Context, do func(context.Context) error, what string, args ...any) ([]*cellv1.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			c.front.note(ctx, what, args...)
			r, err := c.Status(ctx, nil)
			return r.GetMembers(), err
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) || !pause.Sleep(ctx, retryEvery) {
			return nil, refuse(cellv1.Reason_REASON_REFUSED, "the members were not changed: %w", err)
		}
	}
}

// join sees to it that a member counts and is where it says. It learns until it has caught up, if it was
// added; and its peer URL may be another one than when it was started last.
func (m *Member) join(ctx context.Context) (done bool, err error) {
	own, want := m.etcd.Server.Cluster().Member(m.etcd.Server.MemberID()), m.config.peerURL()
	switch {
	case own == nil:
		return true, errors.New("this member is not in the cell: it was removed, or its data is of another cell")
	case len(own.PeerURLs) != 1 || own.PeerURLs[0] != want:
		_, err = m.client.MemberUpdate(ctx, uint64(own.ID), []string{want})
	case own.IsLearner:
		_, err = m.client.MemberPromote(ctx, uint64(own.ID)) // refused until it has caught up
	default:
		return true, nil
	}
	return false, err
}
