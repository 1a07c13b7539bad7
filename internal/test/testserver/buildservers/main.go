// Command buildservers builds the servers that tests would build from source, so that no test
// waits for one.
package main

import (
	"fmt"
	"os"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func main() {
	if err := testserver.BuildServers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
