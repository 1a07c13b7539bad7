package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
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
		Cell: s.Cluster().ID().String(), Member: c.config.Name,
		ShortestTtl: durationpb.New(c.front.minTTL), Poll: durationpb.New(c.front.poll),
		Size: s.Backend().Size(), SizeInUse: s.Backend().SizeInUse(), Shortage: c.front.shortage(),
	}
	if program, ok := debug.ReadBuildInfo(); ok {
		r.Version = program.Main.Version
	}
	leader := types.ID(s.Leader())
	for _, m := range s.Cluster().Members() {
		if m.ID == leader {
			r.Leader = m.Name
		}
		r.Members = append(r.Members, &cellv1.Member{
			Name: m.Name, Id: m.ID.String(), Learner: m.IsLearner, PeerUrl: strings.Join(m.PeerURLs, ","),
		})
	}
	c.front.mirror.mu.Lock()
	defer c.front.mirror.mu.Unlock()
	m := c.front.mirror
	r.Revision, r.Sessions, r.Names, r.Nodes = m.rev, int32(len(m.sessions)), int32(m.names.Len()), int32(m.nodes.Len())
	return r, nil
}

// Add makes room for another member. It learns first, and counts once it has caught up: else a member
// that is never started would stop a cell of one for good.
func (c cell) Add(ctx context.Context, r *cellv1.AddRequest) (*cellv1.AddResponse, error) {
	for _, m := range c.etcd.Server.Cluster().Members() {
		if slices.Contains(m.PeerURLs, "unix://"+m.Name) {
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
func (m *Member) join(ctx context.Context) (err error) {
	own, want := m.etcd.Server.Cluster().Member(m.etcd.Server.MemberID()), m.config.peerURL()
	if own == nil {
		return errNoMember
	}
	if len(own.PeerURLs) != 1 || own.PeerURLs[0] != want {
		_, err = m.client.MemberUpdate(ctx, uint64(own.ID), []string{want})
	}
	if err == nil && own.IsLearner {
		_, err = m.client.MemberPromote(ctx, uint64(own.ID)) // refused until it has caught up
	}
	return err
}

var errNoMember = errors.New("this member is not in the cell: it was removed, or its data is of another cell")

// A backup is a snapshot of etcd's, with its checksum behind it, as etcd's own tools write and read it.
//
// A cell that is made of it must not believe what it says of sessions: a lock of the backup may have been
// released, and granted to somebody else, after the backup was made. So it keeps the nodes only, and the
// ephemeral ones soon go.
// Its revisions begin far behind those of the backup, so that its tokens are larger than any that were
// granted after the backup was made.

// Backup sends all that the cell has.
func (c cell) Backup(ctx context.Context, _ *cellv1.BackupRequest, to *connect.ServerStream[cellv1.BackupResponse]) error {
	// What was acknowledged before the call is in it, whichever member is asked.
	if err := c.front.sync(ctx); err != nil {
		return err
	}
	return v3rpc.NewMaintenanceServer(c.etcd.Server, nil).Snapshot(&etcdserverpb.SnapshotRequest{}, backupStream{ctx: ctx, to: to})
}

// backupStream sends on what etcd's snapshot sends.
type backupStream struct {
	etcdserverpb.Maintenance_SnapshotServer // nil: etcd calls nothing but these two
	ctx                                     context.Context
	to                                      *connect.ServerStream[cellv1.BackupResponse]
}

func (s backupStream) Context() context.Context { return s.ctx }

// Send implements etcdserverpb.Maintenance_SnapshotServer.
func (s backupStream) Send(r *etcdserverpb.SnapshotResponse) error {
	left := int64(r.RemainingBytes)
	if len(r.Blob) != sha256.Size { // all that is sent before the checksum is in pages
		left += sha256.Size
	}
	return s.to.Send(&cellv1.BackupResponse{Chunk: r.Blob, Left: left})
}

// A restored cell begins at a revision that no cell before it has come to: neither that of the backup, nor
// another one that was made of the same backup. So it passes over as many revisions as a cell makes in days,
// and over more the later it is restored: perSecond is more than any cell makes.
const (
	passedOver = 1_000_000_000
	perSecond  = 10_000
)

var revisionsBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// beginning is the revision at which a cell may begin that is restored now from a backup of a revision.
func beginning(backup int64, now time.Time) int64 {
	return passedOver + max(backup, int64(now.Sub(revisionsBegin)/(time.Second/perSecond)))
}

// Restore makes the data of a member out of a backup, for a new cell: its directory must have none. It returns
// the revision at which the cell begins. Every member of the new cell needs it, from the same backup, with
// the same list of members and the revision that the first one has returned; the first one's is 0. Members that
// were made otherwise do not find each other.
//
// The new cell has the backup's permanent nodes. Its tokens are larger than any of the cell that the backup is
// of, and than those of cells that were made of the same backup before, as long as the clock of this host is
// not behind by more than a day. It knows nothing of who had which lock. Start it when nobody trusts a
// lock of the old cell any more: when the longest TTL and lock-delay are over.
func Restore(c Config, backup string, revision int64) (int64, error) {
	c = c.withDefaults()
	if err := c.checkMembers(); err != nil || c.Data == "" {
		return 0, fmt.Errorf("%w: %w", ErrConfig, cmp.Or(err, errors.New("the data directory is missing")))
	}
	hash, err := intact(backup)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", backup, err)
	}
	contents, err := snapshot.NewV3(zap.NewNop()).Status(backup)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %w", backup, errNoBackup, err)
	}
	if revision == 0 {
		revision = beginning(contents.Revision, time.Now())
	}
	if revision <= contents.Revision {
		return 0, fmt.Errorf("%w: revision %d: the backup has come to %d", ErrConfig, revision, contents.Revision)
	}
	if err := makePrivate(c.Data); err != nil {
		return 0, err
	}
	if _, err := os.Stat(c.etcdDir()); !os.IsNotExist(err) {
		return 0, fmt.Errorf("%s is there already: a backup is restored into a new directory (%w)", c.etcdDir(), os.ErrExist)
	}
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: backup, Name: c.Name, OutputDataDir: c.etcdDir(), PeerURLs: []string{c.peerURL()}, InitialCluster: c.cluster(),
		// Members of another cell, from which the backup may be, must not find this one's.
		InitialClusterToken: fmt.Sprintf("holdfast-cell-%x-%d", hash[:8], revision),
		RevisionBump:        uint64(revision - contents.Revision), MarkCompacted: true,
	}); err != nil {
		return 0, fmt.Errorf("the backup was not restored: %w", err)
	}
	return revision, nil
}

var errNoBackup = errors.New("this is no backup of a cell, or it is damaged")

// intact checks the checksum of a backup, and returns it. What reads the file after that trusts it.
func intact(backup string) ([]byte, error) {
	file, err := os.Open(backup)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() <= sha256.Size {
		return nil, cmp.Or(err, errNoBackup)
	}
	hash, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(hash, file, info.Size()-sha256.Size); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(file, want); err != nil || !bytes.Equal(hash.Sum(nil), want) {
		return nil, cmp.Or(err, errNoBackup)
	}
	return want, nil
}

// idAt is where the cell's id stands: that which etcd gives a cluster when it is made.
const idAt = "holdfast/cell"

// identify puts the cell's id into a cell that has just been made. If the cell was made of a backup, another id stands
// there, or none, and all is of the backup: then sessions and locks go. Every member does it before it serves anybody, so
// nobody ever sees them. Ephemeral nodes go soon after, as those of every session that is over.
func (m *Member) identify(ctx context.Context) error {
	id := m.etcd.Server.Cluster().ID().String()
	is, err := m.client.Get(ctx, idAt)
	if err != nil || len(is.Kvs) > 0 && string(is.Kvs[0].Value) == id { // nothing is put if etcd's file is full
		return err
	}
	first := []clientv3.Op{clientv3.OpPut(idAt, id)}
	for _, keys := range []string{layout.LocksAt, layout.TombstonesAt, sessionsAt, homesAt, aliveAt, watchesAt} {
		first = append(first, clientv3.OpDelete(keys, clientv3.WithPrefix()))
	}
	_, err = m.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(idAt), "=", id)).Else(first...).Commit()
	return err
}
