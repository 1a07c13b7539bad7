// Etcdmember is one member of an etcd cluster, for tests: etcd's own server, embedded. It prints "etcdmember serves"
// when it does.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("etcdmember: ")
	cfg := embed.NewConfig()
	client, peer := flag.String("client", "", "URL for clients"), flag.String("peer", "", "URL for members")
	advertised := flag.String("advertised", "", "URL that the other members use; empty: that for members")
	flag.StringVar(&cfg.Name, "name", "", "the member's name")
	flag.StringVar(&cfg.Dir, "dir", "", "where its data is")
	flag.StringVar(&cfg.InitialCluster, "cluster", "", "NAME=URL,… of all members")
	flag.StringVar(&cfg.ClientTLSInfo.CertFile, "cert", "", "the server's certificate")
	flag.StringVar(&cfg.ClientTLSInfo.KeyFile, "key", "", "and its key")
	flag.StringVar(&cfg.ClientTLSInfo.TrustedCAFile, "clientca", "", "the certificate that those of clients are to be signed by; empty: they need none")
	flag.UintVar(&cfg.TickMs, "heartbeat", cfg.TickMs, "milliseconds between heartbeats")
	flag.UintVar(&cfg.ElectionMs, "election", cfg.ElectionMs, "milliseconds without one before an election")
	flag.Int64Var(&cfg.QuotaBackendBytes, "quota", 0, "bytes that the data may have; 0: etcd's default")
	flag.BoolVar(&cfg.UnsafeNoFsync, "nosync", false, "leave it to the system when data is written to the disk")
	flag.StringVar(&cfg.LogLevel, "log", "error", "least level of what is logged")
	flag.Parse()

	cfg.ClientTLSInfo.ClientCertAuth = cfg.ClientTLSInfo.TrustedCAFile != ""
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls(*client), urls(*client)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls(*peer), urls(*peer)
	if *advertised != "" {
		cfg.AdvertisePeerUrls = urls(*advertised)
	}
	cfg.LogOutputs = []string{"stderr"}
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-member.Server.ReadyNotify()
		fmt.Println("etcdmember serves")
	}()
	log.Fatal(<-member.Err())
}

func urls(raw string) []url.URL {
	u, err := url.Parse(raw)
	if err != nil {
		log.Fatal(err)
	}
	return []url.URL{*u}
}
