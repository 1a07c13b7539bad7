//go:build soak && linux

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/internal/test/testserver"

	_ "github.com/holdfastlock/holdfast/memlock" // documented too; the command refuses it
)

var update = flag.Bool("update", false, "rewrite docs/guarantees.md and the tables of stores in README.md and docs/choose.md")

// documented are the stores of the documentation, in its order: the URL that it
// shows, and one that opens the store here. The command links the drivers of all
// of them but memlock.
func documented(t *testing.T) []documentedStore {
	return []documentedStore{
		store(t, "memlock", "mem://orders", "mem://guarantees"),
		store(t, "filelock", "file:///var/lib/app/locks", "file://"+t.TempDir()),
		store(t, "etcdlock", "etcd://a,b,c", "etcd://"+testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()),
		store(t, "zklock", "zk://a,b,c/prefix", "zk://"+testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{}).Addrs()+"/guarantees"),
		store(t, "celllock", "cell://a,b,c/prefix", "cell://"+testserver.StartCell(t, testserver.CellOptions{}).Addrs()),
		store(t, "redislock", "redis://localhost:6379", "redis://"+testserver.StartRedis(t, testserver.RedisOptions{AOF: true}).Addr),
		store(t, "quorum", "redlock://a,b,c,d,e", "redlock://"+strings.Join(redisServers(t, 5), ",")),
		store(t, "sqllock/pgconn", "postgres://localhost/app", testserver.StartPostgres(t).URL("postgres")),
		store(t, "sqllock/mysqlconn", "mysql://localhost/app", testserver.StartMariaDB(t).URL()),
		store(t, "sqllock/sqliteconn", "sqlite:///var/lib/app/locks.db", "sqlite://"+t.TempDir()+"/locks.db"),
	}
}

func store(t *testing.T, pkg, example, url string) documentedStore {
	t.Helper()
	d := openURL(t, url)
	defer d.Close()
	return documentedStore{Package: pkg, URL: example, Driver: d, Caps: d.Caps()}
}

// redisServers starts servers and returns their addresses.
func redisServers(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		addresses = append(addresses, testserver.StartRedis(t, testserver.RedisOptions{AOF: true}).Addr)
	}
	return addresses
}

func openURL(t *testing.T, url string) driver.Driver {
	t.Helper()
	u, err := driver.ParseURL(url)
	testserver.Must(t, err)
	d, err := driver.Open(t.Context(), u)
	testserver.Must(t, err)
	return d
}

// overTwo is Redis with a directory behind it: a driver over two stores.
func overTwo(t *testing.T) documentedStore {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	d, err := fallback.New(openURL(t, "redis://"+server.Addr), openURL(t, "file://"+t.TempDir()), nil)
	testserver.Must(t, err)
	defer d.Close()
	return documentedStore{Package: "fallback", Driver: d, Caps: d.Caps()}
}

// TestGuaranteesDoc checks that the documentation is what the drivers' Caps generate.
func TestGuaranteesDoc(t *testing.T) {
	stores := documented(t)
	redis := "redis://" + redisServers(t, 1)[0]
	like := func(url string, shown documentedStore) documentedStore {
		s := store(t, "redislock", "", url)
		s.With, s.Deployment, s.Layout = shown.With, shown.Deployment, shown.Layout
		return s
	}
	sentinels := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1})
	primary := testserver.StartRedis(t, testserver.RedisOptions{})
	testserver.StartRedisReplicas(t, primary, 1, testserver.RedisOptions{})
	primary.Ask("CONFIG", "SET", "min-replicas-to-write", "1")
	more := []documentedStore{
		like("redis://"+primary.Addr, documentedStore{With: "min-replicas-to-write 1"}),
		like(redis+"?hf.forget=go", documentedStore{With: "hf.forget=go"}),
		like(redis+"?hf.replicas=1", documentedStore{With: "hf.replicas=1"}),
		{}, // durable, below
		like("redis+sentinel://"+sentinels.Addrs()+"/"+testserver.PrimaryName, documentedStore{Deployment: "sentinel"}),
		like("redis+cluster://"+testserver.StartCluster(t, testserver.ClusterOptions{}).Addrs(), documentedStore{Deployment: "cluster"}),
		like(redis+"?hf.layout=setnx", documentedStore{Layout: "setnx"}),
		like(redis+"?hf.layout=redisson", documentedStore{Layout: "redisson"}),
		like(redis+"?hf.layout=redisson&hf.redisson=fair", documentedStore{Layout: "redisson, fair"}),
		like(redis+"?hf.layout=redisson&hf.redisson=fenced", documentedStore{Layout: "redisson, fenced"}),
		overTwo(t),
		store(t, "sqllock/pgconn", "", testserver.StartPostgres(t).URL("postgres")+"&hf.durable=no"),
	}
	more[len(more)-1].With = "hf.durable=no"
	more[3] = store(t, "quorum", "", "redlock://"+strings.Join(redisServers(t, 3), ",")+"?hf.durable=yes")
	more[3].With = "hf.durable=yes"
	all := append(slices.Clone(stores), more...)
	same(t, "../../docs/guarantees.md", func([]byte) ([]byte, error) { return Render(all), nil })
	same(t, "../../README.md", func(text []byte) ([]byte, error) {
		return Splice(text, "stores", Table(stores))
	})
	same(t, "../../docs/choose.md", func(text []byte) ([]byte, error) {
		return Splice(text, "risks", Risks(stores))
	})
}

// same compares a file with its generated form, or, with -update, rewrites it.
func same(t *testing.T, name string, wanted func([]byte) ([]byte, error)) {
	t.Helper()
	name = filepath.FromSlash(name)
	have, err := os.ReadFile(name)
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	want, err := wanted(have)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if bytes.Equal(have, want) {
		return
	}
	if !*update {
		t.Errorf("%s differs from the drivers' Caps; if those are right, run\n\tgo test -tags soak ./cmd/holdfast -run TestGuaranteesDoc -update", name)
		return
	}
	testserver.Must(t, os.WriteFile(name, want, 0o666))
}

func TestEveryFaultHasAMeaning(t *testing.T) {
	for _, f := range driver.Faults() {
		if meanings[f] == "" {
			t.Errorf("nothing says what %q is", f)
		}
	}
}
