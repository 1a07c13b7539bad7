// Etcdmember is one member of an etcd cluster, for tests: etcd's own server,
// embedded, which ends when its standard input does.
//
// It prints "ready" when it serves. A line "jump 1h" on its standard input sets
// its wall clock forward by an hour, if it was built with a package time that
// can (see internal/testserver); it answers "wall" and the wall clock in
// nanoseconds since 1970.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("etcdmember: ")
	cfg := embed.NewConfig()
	client, peer := flag.String("client", "", "URL for clients"), flag.String("peer", "", "URL for members")
	flag.StringVar(&cfg.Name, "name", "", "the member's name")
	flag.StringVar(&cfg.Dir, "dir", "", "where its data is")
	flag.StringVar(&cfg.InitialCluster, "cluster", "", "NAME=URL,… of all members")
	flag.StringVar(&cfg.ClientTLSInfo.CertFile, "cert", "", "the server's certificate")
	flag.StringVar(&cfg.ClientTLSInfo.KeyFile, "key", "", "and its key")
	flag.UintVar(&cfg.TickMs, "heartbeat", cfg.TickMs, "milliseconds between heartbeats")
	flag.UintVar(&cfg.ElectionMs, "election", cfg.ElectionMs, "milliseconds without one before an election")
	flag.Int64Var(&cfg.QuotaBackendBytes, "quota", 0, "bytes that the data may have; 0: etcd's default")
	flag.StringVar(&cfg.AutoCompactionRetention, "compaction", "0", "how long history is kept")
	flag.StringVar(&cfg.LogLevel, "log", "error", "least level of what is logged")
	flag.BoolVar(&cfg.UnsafeNoFsync, "nofsync", false, "leave writing to the disk to the system")
	flag.Parse()

	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls(*client), urls(*client)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls(*peer), urls(*peer)
	cfg.LogOutputs = []string{"stderr"}
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(<-member.Err()) }()
	<-member.Server.ReadyNotify()
	fmt.Println("ready")

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		by, err := time.ParseDuration(strings.TrimPrefix(lines.Text(), "jump "))
		if err == nil {
			err = jump(by)
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("wall", time.Now().UnixNano())
	}
	os.Exit(0) // the test has ended, however
}

// jump sets the wall clock forward. The variable is read by package time.
func jump(by time.Duration) error {
	jumped += by
	return os.Setenv("HOLDFAST_WALL_CLOCK", strconv.FormatInt(int64(jumped), 10))
}

var jumped time.Duration

func urls(raw string) []url.URL {
	u, err := url.Parse(raw)
	if err != nil {
		log.Fatal(err)
	}
	return []url.URL{*u}
}
