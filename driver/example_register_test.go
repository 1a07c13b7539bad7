package driver_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

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
