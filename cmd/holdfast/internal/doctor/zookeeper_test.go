package doctor

import (
	"testing"
	"time"
)

// TestZooKeeperVersions: which versions lose locks, and which have lesser flaws.
func TestZooKeeperVersions(t *testing.T) {
	for version, want := range map[string]struct {
		severity Severity
		sound    string
	}{
		"3.5.8": {Error, "a later minor version"}, "3.6.4": {Error, "a later minor version"}, "3.7.2": {Error, "a later minor version"},
		"3.8.0": {Error, "a later minor version"}, "3.8.5": {Warning, "a later minor version"}, "3.8.6": {Warning, "a later minor version"},
		"3.9.0": {Error, "3.9.5"}, "3.9.2": {Warning, "3.9.5"}, "3.9.3": {Error, "3.9.5"}, "3.9.4": {Warning, "3.9.5"}, "3.9.5": {},
		"3.10.0": {}, "unknown": {}, "3.9.x": {}, "": {},
	} {
		f, sound := zooKeeperFlawOf(version)
		got := Severity("")
		if f != nil {
			got = f.severity
		}
		if got != want.severity || sound != want.sound {
			t.Errorf("ZooKeeper %s: severity %v, sound from %q on; want %v, %q", version, got, sound, want.severity, want.sound)
		}
	}
}

// TestZooKeeperJudges: what slow disks, and much load, mean.
func TestZooKeeperJudges(t *testing.T) {
	for _, c := range []struct {
		usual, slow time.Duration
		want        Severity
	}{
		{time.Millisecond, 50 * time.Millisecond, OK}, {21 * time.Millisecond, 50 * time.Millisecond, Warning}, {time.Millisecond, 11 * time.Second, Warning},
	} {
		if got := judgeSyncs("a", c.usual, c.slow, 30*time.Second); got[0].Severity != c.want {
			t.Errorf("syncs of %v, and of %v: %+v", c.usual, c.slow, got)
		}
	}
}
