// Holdfast runs commands under locks that many hosts share, and shows who holds
// what.
package main

import (
	"os"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
)

func main() {
	if demo.IsChild() {
		os.Exit(demo.Child())
	}
	os.Exit(cli.Main(os.Args[1:]))
}
