package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// backUp returns a backup as a member sends it.
func backUp(t *testing.T, m *Member) []byte {
	t.Helper()
	stream, err := cellv1connect.NewCellClient(http.DefaultClient, "http://"+m.Addr()).Backup(t.Context(), &cellv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var all bytes.Buffer
	left := int64(-1)
	for stream.Receive() {
		all.Write(stream.Msg().Chunk)
		left = stream.Msg().Left
	}
	if err := stream.Err(); err != nil || left != 0 {
		t.Fatalf("%d bytes of the backup are missing: %v", left, err)
	}
	return all.Bytes()
}

// startAs starts a member of a configuration.
func startAs(ctx context.Context, t *testing.T, c Config) (*Member, error) {
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	m, err := Start(ctx, c)
	if err == nil {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := m.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return m, err
}

// TestBadBackup: what is no backup, or a damaged one, is refused.
func TestBadBackup(t *testing.T) {
	good := backUp(t, start(t))
	for what, text := range map[string][]byte{
		"nothing": nil, "text": []byte(strings.Repeat("x", 1<<16)), "half": good[:len(good)/2],
		"damaged": append(append(bytes.Clone(good[:len(good)/2]), good[len(good)/2]^1), good[len(good)/2+1:]...),
	} {
		file := filepath.Join(t.TempDir(), "backup")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c := Config{Data: filepath.Join(t.TempDir(), "data")}
		if _, err := Restore(c, file, 0); !errors.Is(err, errNoBackup) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := Config{Data: filepath.Join(t.TempDir(), "data")}
	if _, err := Restore(c, filepath.Join(t.TempDir(), "missing"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestBeginning: whatever was restored before, of the same backup or of one of a restored cell, a cell that is
// restored later begins behind what that one can have come to.
func TestBeginning(t *testing.T) {
	now := revisionsBegin.AddDate(1, 0, 0)
	first := beginning(5000, now)
	for _, d := range []time.Duration{time.Minute, time.Hour, 1000 * time.Hour} {
		most := first + int64(d/time.Second)*9_999 // it was busy all the time
		for _, backup := range []int64{5000, first, most} {
			if again := beginning(backup, now.Add(d)); again <= most {
				t.Errorf("after %v a backup of revision %d begins at %d; it may have been at %d", d, backup, again, most)
			}
		}
	}
	if got := beginning(5000, now.AddDate(-5, 0, 0)); got < 5000+passedOver {
		t.Errorf("with a clock that is behind the cell begins at %d", got)
	}
}
