package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// TestErrorsOfEndedContexts: the library's words for the end of a context are no
// context's errors; those of the driver are.
func TestErrorsOfEndedContexts(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	dialing := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for what, c := range map[string]struct {
		ctx       context.Context
		err, want error
	}{
		"the server sees the deadline first":  {t.Context(), status.Error(codes.DeadlineExceeded, "context deadline exceeded"), context.DeadlineExceeded},
		"dialling, under a cancelled context": {cancelled, dialing, context.Canceled},
		"a context that goes on":              {t.Context(), dialing, os.ErrDeadlineExceeded},
	} {
		if err := ended(c.ctx, c.err); !errors.Is(err, c.want) || !errors.Is(err, c.err) {
			t.Errorf("P11: %s: %v", what, err)
		}
	}
}

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"etcd://":                                  "http://localhost:2379 user  prefix  layout ",
		"etcd://a,b,c:2/team/a":                    "http://a:2379,http://b:2379,http://c:2 user  prefix team/a layout ",
		"etcd://u:p%2F@a/x?hf.layout=stock":        "http://a:2379 user u prefix x layout stock",
		"etcds://[::1]:1":                          "https://[::1]:1 user  prefix  layout ",
		"etcd://a/?hf.layout=escaped":              "http://a:2379 user  prefix  layout escaped",
		"etcd://a?user=x":                          `unknown URL parameter "user"`,
		"etcd://a?hf.ca=x":                         `unknown URL parameter "hf.ca"`,
		"etcds://a?hf.ca=/nowhere":                 "open /nowhere",
		"etcds://a?hf.cert=x":                      "belong together",
		"etcd:a":                                   "malformed",
		"etcd://a,,b":                              "host 2 of the store URL is empty",
		"etcd://" + strings.Repeat("a,", 64) + "a": "at most 64",
	} {
		u, err := url.Parse(raw)
		must(t, err)
		config, o, err := parse(u)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s user %s prefix %s layout %s", strings.Join(config.Endpoints, ","), config.Username, o.Prefix, o.Layout)
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s is %q, not %q", raw, got, want)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []Options{
		{Layout: "other"}, {Prefix: "/a"}, {Prefix: "a/lock/b"}, {Prefix: strings.Repeat("a", table.MaxPrefix+1)}, {Poll: time.Microsecond},
	} {
		if _, err := New(t.Context(), nil, &o); err == nil {
			t.Errorf("P10: %+v was taken", o)
		}
	}
}
