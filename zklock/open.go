package zklock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

func init() {
	driver.Register("zk", open)
	driver.Register(schemeWithTLS, open)
}

const (
	schemeWithTLS = "zks"
	defaultPort   = "2181"
)

// open opens the driver for a URL.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	return c, nil
}

// ParseURL returns the Config that a store URL stands for. Its errors show nothing of user and password.
func ParseURL(u *url.URL) (Config, error) {
	known := []string{"hf.leader", "hf.acl", "hf.retry"}
	secure := u.Scheme == schemeWithTLS
	if secure {
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return Config{}, err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return Config{}, errors.New("store URL is malformed: it looks like zk://host:2181,host:2181/prefix")
	}
	config := Config{Prefix: strings.Trim(u.Path, "/"), Leader: params["hf.leader"], Retry: params["hf.retry"]}
	if u.User != nil {
		config.User = u.User.Username()
		config.Password, _ = u.User.Password()
		if config.User == "" || strings.Contains(config.User, ":") {
			return Config{}, errors.New("the user of the store URL is empty or has a colon, which ZooKeeper's digest cannot have")
		}
	}
	switch acl := params["hf.acl"]; {
	case acl == "open" && config.User != "":
		config.Open = true
	case acl != "" && acl != "creator" && acl != "open":
		return Config{}, fmt.Errorf("hf.acl is %.40q: open or creator is right", acl)
	case acl == "creator" && config.User == "":
		return Config{}, errors.New("hf.acl=creator needs a user: zk://user:password@host")
	}
	if config.Servers, err = storeurl.Hosts(u.Host, defaultPort); err != nil {
		return Config{}, err
	}
	if secure {
		source, err := certs.New(certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]})
		if err != nil {
			return Config{}, err
		}
		config.TLS = source.Config
	}
	return config, nil
}
