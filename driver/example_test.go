package driver_test

import (
	"context"
	"fmt"
	"net/url"

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

func ExampleRedact() {
	u, err := driver.ParseURL("redis://app:secret@db1/0?hf.prefix=a/&key=secret")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(driver.Redact(u))
	// Output: redis://app:xxxxx@db1/0?hf.prefix=a%2F&key=xxxxx
}

func ExampleAs() {
	d := memlock.NewStore(nil).Client()
	defer d.Close()
	_, queues := driver.As[driver.Queuer](d)
	_, shards := driver.As[driver.Sharder](d)
	fmt.Println("queues:", queues, "has parts that fail independently:", shards)
	// Output: queues: true has parts that fail independently: false
}

func ExampleCaps_Missing() {
	have := driver.Caps{Fencing: true}
	fmt.Printf("%q\n", have.Missing(driver.Caps{Fencing: true, Fair: true}))
	// Output: ["fairness between clients"]
}

// store stands for the store of the driver that you write.
var store = memlock.NewStore(nil)

func init() { driver.Register("example", open) }

func open(_ context.Context, u *url.URL) (driver.Driver, error) {
	if _, err := driver.Params(u, false, "hf.layout"); err != nil {
		return nil, err
	}
	return store.Client(), nil
}

// A driver's package registers its scheme in an init function, and refuses parameters that it
// does not know.
func ExampleRegister() {
	u, err := driver.ParseURL("example://host/?hf.color=red")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = driver.Open(context.Background(), u)
	fmt.Println(err)
	// Output: unknown URL parameter "hf.color" for example://; known are: hf.layout, hf.prefix, hf.ttl
}
