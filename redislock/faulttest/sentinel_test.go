//go:build soak

package faulttest

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// openURL opens a client, which is closed with the test.
func openURL(t testing.TB, raw string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), raw)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func sentinelURL(s *testserver.Sentinels) string {
	return "redis+sentinel://" + s.Addrs() + "/" + testserver.PrimaryName
}

// TestSentinelPassword: servers and sentinels want the same password. A name that the sentinels do not
// know, a wrong password and sentinels that are gone are told.
func TestSentinelPassword(t *testing.T) {
	t.Parallel()
	const password = "s3cret"
	s := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1, Password: password})
	hosts := s.Addrs()
	c := openURL(t, "redis+sentinel://:"+password+"@"+hosts+"/"+testserver.PrimaryName)
	must(t, acquire(t, c, "x", nil).Release())
	for raw, says := range map[string]string{
		"redis+sentinel://:" + password + "@" + hosts + "/another":                             "another",
		"redis+sentinel://:wrong@" + hosts + "/" + testserver.PrimaryName:                      "WRONGPASS",
		"redis+sentinel://" + hosts + "/" + testserver.PrimaryName:                             "NOAUTH",
		"redis+sentinel://:" + password + "@127.0.0.1:1,127.0.0.1:2/" + testserver.PrimaryName: "refused",
	} {
		c, err := holdfast.Open(t.Context(), raw)
		if err == nil {
			c.Close()
			t.Errorf("%s was opened", raw)
		} else if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v does not say %q, or shows the password", raw, err, says)
		}
	}
	// One sentinel is enough, and holders need none.
	s.Sentinels[0].Kill()
	s.Sentinels[1].Kill()
	must(t, acquire(t, openURL(t, "redis+sentinel://:"+password+"@"+hosts+"/"+testserver.PrimaryName), "x", nil).Release())
	s.Sentinels[2].Kill()
	if err := acquire(t, c, "x", nil).Release(); err != nil {
		t.Errorf("without sentinels: %v", err)
	}
}
