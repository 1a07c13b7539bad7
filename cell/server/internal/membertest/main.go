// Membertest is a cell of one member, for tests, whose wall clock can be set.
//
// It prints its URL when it serves. It looks often at the file that HOLDFAST_TEST_CLOCK names. The file begins
// with the nanoseconds, of which whole seconds count, by which its wall clock, and not the clock that cannot
// be set, is ahead of the host's. When that has changed it prints "wall", the seconds, and its wall clock in
// nanoseconds since 1970. For that internal/test/testserver builds it with a package time of its own.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/holdfastlock/holdfast/cell/server"
)

// wallJump is by how many seconds time.Now differs from the host's wall clock.
//
//go:linkname wallJump time.wallJump
var wallJump int64

func main() {
	log.SetFlags(0)
	log.SetPrefix("membertest: ")
	var c server.Config
	flag.StringVar(&c.Name, "name", "", "the member's name")
	flag.StringVar(&c.Data, "data", "", "where its data is")
	flag.StringVar(&c.Listen, "listen", "", "host:port for clients")
	flag.DurationVar(&c.Election, "election", 0, "time without a heartbeat before an election")
	flag.DurationVar(&c.Heartbeat, "heartbeat", 0, "time between two heartbeats")
	flag.String("log", "", "ignored")
	flag.Parse()
	m, err := server.Start(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.URL())
	go func() { log.Fatal(<-m.Failed()) }()
	for ; ; time.Sleep(10 * time.Millisecond) {
		file, err := os.ReadFile(os.Getenv("HOLDFAST_TEST_CLOCK"))
		if err != nil || len(file) < 8 {
			log.Fatalf("the clock's file has %d bytes: %v", len(file), err)
		}
		ahead := int64(binary.NativeEndian.Uint64(file)) / int64(time.Second)
		if ahead != wallJump {
			wallJump = ahead
			fmt.Println("wall", ahead, time.Now().UnixNano())
		}
	}
}
