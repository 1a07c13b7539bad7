package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

func ExampleCheckName() {
	fmt.Println(driver.CheckName("orders/42"))
	fmt.Println(driver.CheckName("orders//42"))
	// Output:
	// <nil>
	// name "orders//42" has an empty path element: no slash at the start or the end, and no two together
}

func ExampleSequencer() {
	s := driver.Sequencer{Name: "orders/42", Mode: driver.Exclusive, Token: 42}
	fmt.Println(s)

	same, err := driver.ParseSequencer(s.String())
	fmt.Println(same == s, err)
	// Output:
	// hf1:x:42:orders%2F42
	// true <nil>
}

func ExampleParseSequencer() {
	_, err := driver.ParseSequencer("hf1:x:042:orders%2F42")
	fmt.Println(err)
	// Output: sequencer "hf1:x:042:orders%2F42" has a malformed token: it looks like hf1:x:42:orders%2F42
}

func ExampleRedact() {
	u, err := driver.ParseURL("redis://app:secret@db1/0?hf.prefix=a/&key=secret")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(driver.Redact(u))
	// Output: redis://app:xxxxx@db1/0?hf.prefix=a%2F&key=xxxxx
}

// counting counts the tries of another driver. Forward forwards the other calls, the optional
// operations too.
type counting struct {
	driver.Forward
	tries int
}

func (c *counting) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	c.tries++
	return c.Forward.Try(ctx, r)
}

func ExampleForward() {
	ctx := context.Background()
	d := &counting{Forward: driver.Forward{Driver: memlock.NewStore(nil).Client()}}
	defer d.Close()
	for _, owner := range []string{"a", "b"} {
		_, err := d.Try(ctx, driver.Request{Name: "orders/42", Owner: owner, TTL: 30 * time.Second})
		fmt.Println(owner, errors.Is(err, driver.ErrHeld))
	}
	_, inspects := driver.As[driver.Inspector](d, driver.OpInspect)
	fmt.Println(d.tries, "tries; can inspect:", inspects)
	// Output:
	// a false
	// b true
	// 2 tries; can inspect: true
}

func ExampleCaps_Missing() {
	have := driver.Caps{Fencing: true, Ops: driver.OpInspect}
	fmt.Printf("%q\n", have.Missing(driver.Caps{Fencing: true, Fair: true, Ops: driver.OpInspect | driver.OpBreak}))
	// Output: ["operations break" "fairness between clients"]
}
