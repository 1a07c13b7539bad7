//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func init() { childModes["change"] = change }

// change is a child that changes two records for ever.
func change(dir string) error {
	d, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	requests := []driver.Request{request("short"), request("long")}
	for i := range requests {
		requests[i].TTL, requests[i].Mode = 10*time.Millisecond, driver.Shared
		requests[i].Note = strings.Repeat("n", pageSize-textStart-400+i*500)
	}
	for n := 1; ; n++ {
		r := &requests[n%10/9] // the short one takes less time
		r.Owner = strconv.Itoa(n)
		g, err := d.Try(context.Background(), *r)
		if err != nil {
			return err
		}
		if err := d.Release(context.Background(), []driver.Grant{g})[0]; err != nil && !driver.Gone(err) {
			return err
		}
		if n%1000 == 0 {
			fmt.Println("and on")
		}
	}
}
