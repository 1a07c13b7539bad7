package fence_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// A gate in front of something in memory. The tokens are those of leases:
// lease.Token().
func ExampleGate() {
	var gate fence.Gate
	stock := 3

	// A holder reads, and is paused.
	fmt.Println(gate.Admit(1, driver.Exclusive))
	seen := stock

	// Its lock ends, and the next holder reads.
	fmt.Println(gate.Admit(2, driver.Exclusive))

	// The first one wakes up and writes: too late.
	fmt.Println(gate.Do(1, driver.Exclusive, func() error {
		stock = seen - 1
		return nil
	}))
	fmt.Println("stock:", stock)
	// Output:
	// <nil>
	// <nil>
	// stale fencing token: exclusive token 1 is below 2, which has used the resource since
	// stock: 3
}

// A service whose orders are each guarded by a lock. The client sends the
// sequencer of its lease: req.Header.Set(fence.Header, lease.Sequencer()).
func ExampleHandler() {
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, _ := fence.FromContext(r.Context())
		fmt.Fprintf(w, "token %d\n", s.Token)
	})
	service := httptest.NewServer(fence.Handler(orders, &fence.HandlerOptions{
		Name: func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") },
	}))
	defer service.Close()

	for _, sequencer := range []string{
		"hf1:x:41:orders%2F42", // a holder
		"hf1:x:42:orders%2F42", // the next one
		"hf1:x:41:orders%2F42", // the first one, after a pause
		"hf1:x:99:orders%2F43", // another lock's
	} {
		req, err := http.NewRequest(http.MethodPut, service.URL+"/orders/42", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header.Set(fence.Header, sequencer)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 409 Conflict
	// 403 Forbidden
}
