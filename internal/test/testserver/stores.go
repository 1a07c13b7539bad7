package testserver

import "testing"

// Stores start a server of each store, whose locks may have a TTL of an hour. They return its URL and what stops the
// server, if there is one: it accepts connections then, and answers nothing.
var Stores = map[string]func(testing.TB) (url string, pause func()){
	"files":  func(t testing.TB) (string, func()) { return "file://" + t.TempDir(), nil },
	"SQLite": func(t testing.TB) (string, func()) { return "sqlite://" + t.TempDir() + "/locks.db", nil },
	"Redis": func(t testing.TB) (string, func()) {
		s := StartRedis(t, RedisOptions{})
		return "redis://" + s.Addr + "?hf.maxttl=1h", s.Pause
	},
	"PostgreSQL": func(t testing.TB) (string, func()) {
		s := StartPostgres(t)
		return s.URL("postgres") + "&hf.maxttl=1h", s.Pause
	},
	"MariaDB": func(t testing.TB) (string, func()) {
		s := StartMariaDB(t)
		return s.URL() + "?hf.maxttl=1h", s.Pause
	},
	"etcd": func(t testing.TB) (string, func()) {
		s := StartEtcd(t, EtcdOptions{})
		return "etcd://" + s.Addrs(), s.Members[0].Pause
	},
	"ZooKeeper": func(t testing.TB) (string, func()) {
		s := StartZooKeeper(t, ZooKeeperOptions{})
		return "zk://" + s.Addrs() + "/app/locks", s.Members[0].Pause
	},
	"a cell": func(t testing.TB) (string, func()) {
		s := StartCell(t, CellOptions{})
		return "cell://" + s.Addrs(), s.Members[0].Pause
	},
}
