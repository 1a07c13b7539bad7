// Holdfast runs commands under locks that many hosts share, and shows who holds
// what.
package main

import (
	"os"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
)

func main() {
	child.GuardIfAsked() // first: the process may be the guard of another
	if demo.IsChild() {
		os.Exit(demo.Child())
	}
	os.Exit(cli.Main(os.Args[1:]))
}
