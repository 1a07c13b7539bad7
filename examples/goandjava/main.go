// Goandjava is a service in Go and one in Java, Counter.java, on one lock: that of Redisson, which Holdfast takes on
// the same keys. Each adds to the number in a file, under the lock, and no addition is lost. It needs Redis, and for
// Java a JDK of version 17 or newer, and Redisson, which Maven fetches. Type
//
//	mvn dependency:copy -Dartifact=org.redisson:redisson-all:4.7.0 -DoutputDirectory=/tmp/jars
//	java -cp '/tmp/jars/*' goandjava/Counter.java redis://localhost:6379 /tmp/holdfast-example-counter 1000 &
//	go run ./goandjava
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/redislock"
)

var (
	redis = flag.String("redis", cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), "the server that both services use")
	file  = flag.String("file", "/tmp/holdfast-example-counter", "the file that both services write")
	times = flag.Int("times", 1000, "how often to add one")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	locks, err := holdfast.Open(ctx, *redis+"?hf.layout=redisson")
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lock := locks.Mutex("examples/counter", nil) // in Java: getLock("examples/counter")
	for range *times {
		if err := lock.Do(ctx, add); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("Go has added", *times)
}

// add reads the number, works for a moment, and writes it.
func add(context.Context, *holdfast.Lease) error {
	text, _ := os.ReadFile(*file)
	n, _ := strconv.Atoi(string(text)) // 0: there is no file yet
	time.Sleep(time.Millisecond)
	return os.WriteFile(*file, []byte(strconv.Itoa(n+1)), 0o600)
}
