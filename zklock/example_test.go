package zklock_test

import (
	"context"
	"log"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/zklock"
)

// A Java service that has new InterProcessMutex(curator, "/app/locks/orders/42") and this one take turns.
func Example() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "zk://10.0.0.1,10.0.0.2,10.0.0.3/app/locks")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		return ship(ctx, lease.Token()) // the token is the czxid of the node
	})
	if err != nil {
		log.Print(err)
	}
}

func ship(context.Context, holdfast.Token) error { return nil }
