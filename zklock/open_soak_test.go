//go:build soak

package zklock

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// TestNobodyAnswers: the error says which server does not answer, and nothing of the password.
func TestNobodyAnswers(t *testing.T) {
	u := &url.URL{Scheme: "zk", Host: "127.0.0.1:1", User: url.UserPassword("u", "hush")}
	_, err := driver.Open(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "hush") {
		t.Errorf("opening a store that does not answer: %v", err)
	}
	if errors.Is(err, driver.ErrUncertain) {
		t.Errorf("opening a store that does not answer is uncertain: %v", err)
	}
}
