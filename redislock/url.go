package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/life"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/quorum"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"} {
		driver.Register(scheme, openURL)
	}
	driver.Register("redlock", quorum.Opener("redis", "hf.layout"))
}

// openURL opens the driver for a URL.
func openURL(ctx context.Context, u *url.URL) (driver.Driver, error) {
	to, o, err := parse(u)
	if err != nil {
		return nil, err
	}
	conn, err := to.connect(ctx)
	if err != nil {
		return nil, explained(u, err)
	}
	return New(ctx, conn, o)
}

// keepAlive is how long a connection is idle before the network tries it.
const keepAlive = 5 * time.Second

// parse reads a URL. Its errors show nothing of user and password.
func parse(u *url.URL) (*target, *Options, error) {
	known := []string{"hf.layout", "hf.redisson", "hf.replicas", "hf.forget", "hf.maxttl"}
	scheme, deployment, _ := strings.Cut(u.Scheme, "+")
	switch {
	case deployment == "unix":
		known = append(known, "hf.db")
	case scheme == "rediss":
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return nil, nil, err
	}
	dialer := &net.Dialer{KeepAlive: keepAlive}
	to := &target{network: "tcp", cluster: deployment == "cluster", by: dialer.DialContext}
	if u.User != nil {
		to.user = u.User.Username()
		var ok bool
		if to.password, ok = u.User.Password(); !ok {
			return nil, nil, errors.New("store URL has a user without a password: it looks like redis://user:password@host, or redis://:password@host without a user")
		}
	}
	db := params["hf.db"]
	switch {
	case u.Opaque != "" || u.Fragment != "":
		err = errors.New("store URL is malformed: it looks like redis://host:6379/0")
	case deployment != "unix":
		db, err = to.parseHosts(u, deployment)
	case u.Host != "" || u.Path == "" || u.Path == "/":
		err = errors.New("store URL has no socket: it looks like redis+unix:///run/redis/redis.sock, with three slashes")
	default:
		to.network, to.addresses = "unix", []string{u.Path}
	}
	if err == nil && scheme == "rediss" {
		var source *certs.Source // it reads the files for each connection, because they are replaced before they expire
		if source, err = certs.New(certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]}); err == nil {
			to.tls = source.Config
		}
	}
	if err == nil && db != "" {
		if to.database, err = strconv.Atoi(db); err != nil || to.database < 0 {
			err = fmt.Errorf("database %.40q is not a number from 0 up", db)
		}
	}
	o := &Options{Layout: Layout(params["hf.layout"]), Redisson: RedissonKind(params["hf.redisson"])}
	if n := params["hf.replicas"]; err == nil && n != "" {
		if o.Replicas, err = strconv.Atoi(n); err != nil || o.Replicas < 0 || o.Replicas > MaxReplicas {
			err = fmt.Errorf("hf.replicas %.40q is not a number from 0 to %d", n, MaxReplicas)
		}
	}
	if err == nil {
		o.MaxTTL, o.Forget, err = life.Params(params)
	}
	return to, o, cmp.Or(err, o.check())
}

// parseHosts reads what a URL of a deployment says of hosts, and returns its database.
func (to *target) parseHosts(u *url.URL, deployment string) (db string, err error) {
	db = strings.Trim(u.Path, "/")
	port, example := "6379", "host:6379/0"
	if deployment == "cluster" {
		example = "host:6379,host:6379"
	}
	if deployment == "sentinel" {
		port, example = "26379", "host:26379,host:26379/PRIMARY"
		if to.primary, db, _ = strings.Cut(db, "/"); to.primary == "" {
			return "", fmt.Errorf("store URL does not name the primary: it looks like %s://%s, with the name by which the sentinels know it", u.Scheme, example)
		}
	}
	if to.addresses, err = storeurl.Hosts(u.Host, port); err != nil {
		return "", fmt.Errorf("%w: it looks like %s://%s", err, u.Scheme, example)
	}
	switch {
	case deployment == "" && len(to.addresses) > 1:
		return "", errors.New("store URL has several hosts: those of sentinels belong in redis+sentinel://, those of a cluster in redis+cluster://")
	case deployment == "cluster" && db != "" && db != "0":
		return "", fmt.Errorf("database %.40q: a cluster has database 0 only", db)
	}
	return db, nil
}
