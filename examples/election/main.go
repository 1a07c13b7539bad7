// Election lets the processes that run this program elect one of them as their leader. It needs no server. Type
//
//	go run ./election -name a
//	go run ./election -name b
//
// in two terminals, and end the leader by Ctrl-C: the other one leads at once.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/redislock"
)

var name = flag.String("name", fmt.Sprint("process ", os.Getpid()), "what others see of the leader, such as its address")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "file:///tmp/holdfast-examples"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	e := election.New(locks, "examples/election", nil)
	go watch(ctx, e)

	for ctx.Err() == nil {
		err := e.Do(ctx, *name, lead)
		if errors.Is(err, holdfast.ErrLost) {
			log.Print(err) // another process may lead now: campaign again
		} else if err != nil && ctx.Err() == nil {
			log.Fatal(err)
		}
	}
}

// lead is the leader's work. Its context ends before another can lead, and by Ctrl-C. Do then resigns.
func lead(ctx context.Context, l *election.Leadership) error {
	fmt.Printf("%s leads, with token %d\n", *name, l.Token())
	<-ctx.Done()
	return nil
}

// watch follows who leads, as a process that does not campaign can too.
func watch(ctx context.Context, e *election.Election) {
	for leader, err := range e.Observe(ctx) {
		switch {
		case err != nil:
			log.Print(err)
		case leader.Vacant:
			fmt.Println("nobody leads")
		default:
			fmt.Println("the leader is", leader.Value)
		}
	}
}
