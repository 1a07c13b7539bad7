// Sale is the flash sale of `holdfast demo` alone, with locks in files and the stock in SQLite: it compiles
// in a fraction of the time of the whole command. Its arguments are names of strategies.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
)

func main() {
	if demo.IsChild() {
		os.Exit(demo.Child())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo.Run(ctx, demo.Options{Out: os.Stdout, Progress: os.Stderr, Strategies: os.Args[1:]}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
