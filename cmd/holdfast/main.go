// Holdfast runs commands under locks that many hosts share, and shows who holds
// what.
package main

import (
	"os"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/cli"
)

func main() {
	child.GuardIfAsked() // first: the process may be the guard of another
	os.Exit(cli.Main(os.Args[1:]))
}
