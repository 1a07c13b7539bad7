package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
)

// All processes of the host that open the directory share its locks. It is made if it is missing.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "app-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	locks, err := holdfast.Open(ctx, "file://"+dir+"/locks")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("reports/nightly", nil).TryAcquire(ctx)
	if errors.Is(err, holdfast.ErrHeld) {
		fmt.Println("another process writes the report")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("writing the report")
	if err := lease.Release(); err != nil {
		log.Fatal("the report may have been written twice: ", err)
	}
	// Output: writing the report
}
