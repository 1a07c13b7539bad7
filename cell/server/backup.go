package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// A backup is a snapshot of etcd's, with its checksum behind it, as etcd's own tools write and read it.
//
// A cell that is made of it must not believe what it says of sessions: a lock of the backup may have been
// released, and granted to somebody else, after the backup was made. So it keeps the permanent nodes only.
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

// restored is the file in a member's directory that says that its data are those of a backup, from which
// what belonged to sessions is still to be removed.
type restored struct {
	Revision int64 `json:"revision"` // the last one that may be of the backup
}

func (c *Config) restoredFile() string { return filepath.Join(c.Data, "restored.json") }

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
	// First the mark: if this ends in between, a member that finds it removes too much and not too little.
	text, err := json.Marshal(restored{revision})
	if err != nil {
		return 0, err
	}
	if err := makePrivate(c.Data); err != nil {
		return 0, err
	}
	if _, err := os.Stat(c.etcdDir()); !os.IsNotExist(err) {
		return 0, fmt.Errorf("%s is there already: a backup is restored into a new directory (%w)", c.etcdDir(), os.ErrExist)
	}
	if err := os.WriteFile(c.restoredFile(), text, 0o600); err != nil {
		return 0, err
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
	if err != nil {
		return nil, err
	}
	if info.Size() <= sha256.Size {
		return nil, errNoBackup
	}
	hash, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(hash, file, info.Size()-sha256.Size); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(file, want); err != nil {
		return nil, err
	}
	if !bytes.Equal(hash.Sum(nil), want) {
		return nil, errNoBackup
	}
	return want, nil
}

// forgetSessions removes from a restored cell what the backup says of sessions and locks, if this member
// has not done that yet. Every member does it before it serves anybody, so nobody ever sees it.
func (m *Member) forgetSessions(ctx context.Context) error {
	text, err := os.ReadFile(m.config.restoredFile())
	if os.IsNotExist(err) {
		return nil
	}
	var mark restored
	if err == nil {
		err = json.Unmarshal(text, &mark)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.config.restoredFile(), err)
	}
	for key := []byte{0}; key != nil; {
		if key, err = m.forgetSome(ctx, key, mark.Revision); err != nil {
			return fmt.Errorf("what the backup says of sessions is not removed yet: %w", err)
		}
	}
	return os.Remove(m.config.restoredFile())
}

// forgetAtOnce is how many keys are removed by one transaction, and the contents of each. etcd admits 128 operations.
const forgetAtOnce = 60

// forgetSome looks at some keys, and returns where to go on; nil: nowhere.
func (m *Member) forgetSome(ctx context.Context, from []byte, upTo int64) (next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	resp, err := m.etcd.Server.Range(ctx, &etcdserverpb.RangeRequest{Key: from, RangeEnd: []byte{0}, Limit: forgetAtOnce})
	if err != nil {
		return nil, err
	}
	var same []*etcdserverpb.Compare
	var ops []*etcdserverpb.RequestOp
	for _, kv := range resp.Kvs {
		path, contents, node := nodeOf(string(kv.Key))
		var rights acl
		if node && (contents || json.Unmarshal(kv.Value, &rights) == nil && rights.Session == "") || kv.ModRevision > upTo {
			continue
		}
		same = append(same, table.CompareChanged(kv.Key, kv.ModRevision))
		if ops = append(ops, table.DeleteOp(kv.Key)); node {
			ops = append(ops, table.DeleteOp([]byte(contentsAt+path)))
		}
	}
	if len(ops) > 0 {
		done, err := m.etcd.Server.Txn(ctx, &etcdserverpb.TxnRequest{Compare: same, Success: ops})
		if err != nil {
			return nil, err
		}
		if !done.Succeeded {
			return from, nil // another member was quicker
		}
	}
	if !resp.More {
		return nil, nil
	}
	return append(append([]byte(nil), resp.Kvs[len(resp.Kvs)-1].Key...), 0), nil
}
