package driver

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestOpenNamesThePackage: a scheme without a driver is answered by what to import.
func TestOpenNamesThePackage(t *testing.T) {
	u := &url.URL{Scheme: "mariadb", Host: "h"}
	const want = `import _ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"`
	if _, err := Open(context.Background(), u); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want one that says %s", err, want)
	}
}

// TestOpenNoAnswer: a store that does not answer in time is named, with the time.
func TestOpenNoAnswer(t *testing.T) {
	scheme := strings.ToLower("silent-" + rand.Text()) // a scheme stays registered, and tests are repeated
	Register(scheme, func(ctx context.Context, _ *url.URL) (Driver, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, &url.URL{Scheme: scheme, User: url.UserPassword("u", "s3cr3t"), Host: "h:1234"})
	if err == nil || !strings.HasPrefix(err.Error(), "no answer from h:1234 within ") || !strings.HasSuffix(err.Error(), "s: "+context.DeadlineExceeded.Error()) {
		t.Errorf("the error is %v", err)
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Error("it shows the password")
	}
}
