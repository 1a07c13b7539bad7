package redislock

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// Another program's key is refused as a lock's, and stays as it is.
func TestForeignKeyIsRefused(t *testing.T) {
	server := shared(t)
	conn := dialResp(t, server.Addr)
	d, err := New(t.Context(), conn, &Options{Prefix: "foreign", Forget: true})
	testserver.Must(t, err)
	defer d.Close()
	conn.do(t, "HSET", "foreign:{a}", "field", "value")
	req := driver.Request{Name: "a", Owner: "o", TTL: 30 * time.Second}
	_, taken := d.Try(t.Context(), req)
	_, queued := d.(driver.Queuer).Enqueue(t.Context(), req)
	_, inspected := d.(driver.Operator).Inspect(t.Context(), "a")
	for what, err := range map[string]error{"Try": taken, "Enqueue": queued, "Inspect": inspected} {
		if err == nil || errors.Is(err, driver.ErrUncertain) || !strings.Contains(err.Error(), "another program") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := conn.do(t, "HGETALL", "foreign:{a}"); !reflect.DeepEqual(got, []any{"field", "value"}) && !reflect.DeepEqual(got, map[any]any{"field": "value"}) {
		t.Errorf("the key is %v", got)
	}
}

// A key that another program has overwritten spoils the hold of that name, and no
// other of the batch.
func TestForeignKeySpoilsNoBatch(t *testing.T) {
	server := shared(t)
	conn := dialResp(t, server.Addr)
	d, err := New(t.Context(), conn, nil)
	testserver.Must(t, err)
	defer d.Close()
	var grants []driver.Grant
	for _, name := range []string{"a", "b", "c"} {
		g, err := d.Try(t.Context(), driver.Request{Name: name, Owner: "o" + name, TTL: 30 * time.Second})
		testserver.Must(t, err)
		grants = append(grants, g)
	}
	conn.do(t, "SET", "holdfast:{a}", "foreign")
	for i, r := range d.Renew(t.Context(), grants) {
		if (r.Err != nil) != (i == 0) {
			t.Errorf("renewing %s: %v", grants[i].Name, r.Err)
		}
	}
	for i, err := range d.Release(t.Context(), grants) {
		if (err != nil) != (i == 0) {
			t.Errorf("releasing %s: %v", grants[i].Name, err)
		}
	}
}
