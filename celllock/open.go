package celllock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

func init() {
	driver.Register("cell", open)
	driver.Register(schemeWithTLS, open)
}

const (
	defaultPort   = "7433"
	schemeWithTLS = "cells"
)

// open opens the driver for a URL.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	config, prefix, err := Config(u)
	if err != nil {
		return nil, err
	}
	of, err := cell.New(config)
	if err != nil {
		return nil, err
	}
	c, err := connectTo(ctx, of, true, &Options{Prefix: prefix})
	if err != nil {
		of.Close()
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	return c, nil
}

// Config returns how a client of the cell that a store URL names is made, for those who use the cell
// itself: cell.New takes it. The prefix stands before all names of the URL; "": none does. Its errors do
// not show the token.
func Config(u *url.URL) (config cell.Config, prefix string, err error) {
	known := []string{"hf.token-file"}
	secure := u.Scheme == schemeWithTLS
	if secure {
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return config, "", err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return config, "", errors.New("store URL is malformed: it looks like cell://host:7433,host:7433/prefix")
	}
	if u.User != nil {
		if u.User.Username() != "" {
			return config, "", errors.New("store URL has a user: a token is the password, as in cells://:TOKEN@host")
		}
		config.Token, _ = u.User.Password()
	}
	config.TokenFile = params["hf.token-file"]
	if config.Members, err = storeurl.Hosts(u.Host, defaultPort); err != nil {
		return config, "", fmt.Errorf("%w: it looks like cell://host:7433,host:7433/prefix", err)
	}
	if secure {
		source, err := certs.New(certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]})
		if err != nil {
			return config, "", err
		}
		config.TLS = source.Config
	}
	return config, strings.Trim(u.Path, "/"), nil
}
