package doctor

import (
	"testing"
)

// TestEtcdVersions: which versions lose locks, and which let users do too much.
func TestEtcdVersions(t *testing.T) {
	for version, want := range map[string]struct {
		severity Severity
		sound    string
	}{
		"3.4.7": {Error, "a later minor version"}, "3.4.31": {Error, "a later minor version"}, "3.4.45": {Warning, "a later minor version"},
		"3.5.2": {Error, "3.5.33"}, "3.5.12": {Error, "3.5.33"}, "3.5.22": {Error, "3.5.33"}, "3.5.23": {Warning, "3.5.33"}, "3.5.33": {},
		"3.6.0-rc.5": {Error, "3.6.14"}, "3.6.4": {Error, "3.6.14"}, "3.6.13": {Warning, "3.6.14"}, "3.6.14": {},
		"3.7.0": {Warning, "3.7.1"}, "3.7.1": {}, "3.8.0-alpha.0": {}, "4.0.0": {}, "unknown": {}, "3.5.x": {},
	} {
		h, sound := flawOf(version)
		got := Severity("")
		if h != nil {
			got = h.severity
		}
		if got != want.severity || sound != want.sound {
			t.Errorf("etcd %s: severity %v, sound from %q on; want %v, %q", version, got, sound, want.severity, want.sound)
		}
	}
}
