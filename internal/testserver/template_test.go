package testserver

import "testing"

// TestCacheDirIsTheUsers: where the user has no cache there is no fallback that another user could
// prepare.
func TestCacheDirIsTheUsers(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if dir, err := cacheDir("holdfast-servers"); err == nil {
		t.Errorf("programs and files would be kept in %s", dir)
	}
}
