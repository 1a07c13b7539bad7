// Command buildservers builds the servers that tests build from their source, so that the first
// test that needs one does not wait for it.
package main

import (
	"fmt"
	"os"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

func main() {
	if err := testserver.BuildServers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
