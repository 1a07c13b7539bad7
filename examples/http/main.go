// Http is a service that handles one order of a user at a time, in all of its replicas together. A handler passes the
// context of its request to the lock: if the client goes away, the request neither waits nor works any longer. It
// needs no server. Type
//
//	go run ./http
//	curl -X POST http://localhost:8080/users/ada/orders
//
// and the last line in two terminals.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	_ "github.com/holdfastlock/holdfast/redislock"
)

var (
	listen   = flag.String("listen", "localhost:8080", "the address of the service")
	patience = flag.Duration("patience", time.Second, "how long a request waits for the lock")
	work     = flag.Duration("work", 5*time.Second, "how long an order takes")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := holdfast.Open(ctx, cmp.Or(os.Getenv("HOLDFAST_STORE"), "file:///tmp/holdfast-examples"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users/{user}/orders", func(w http.ResponseWriter, r *http.Request) { order(w, r, locks) })
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	fmt.Printf("listens at http://%s\n", l.Addr())
	<-ctx.Done()
	server.Shutdown(context.Background()) // orders that are under way end
}

func order(w http.ResponseWriter, r *http.Request, locks *holdfast.Client) {
	user := r.PathValue("user")
	lock := locks.Mutex("users/"+url.PathEscape(user), nil) // costs nothing before it is acquired

	waiting, cancel := context.WithTimeout(r.Context(), *patience)
	defer cancel()
	lease, err := lock.Acquire(waiting) // the context bounds the wait, not the work
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		http.Error(w, "another order of "+user+" is under way", http.StatusConflict)
		return
	case err != nil:
		http.Error(w, "no lock: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer lease.Release() // if the work panics

	working, cancel := lease.WithContext(r.Context()) // ends with the client's connection, or with the lock
	defer cancel()
	if err := errors.Join(charge(working, user, lease.Token()), lease.Release()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "done")
}

// charge is the work.
func charge(ctx context.Context, user string, token holdfast.Token) error {
	fmt.Printf("charges %s, with token %d\n", user, token)
	select {
	case <-time.After(*work):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
