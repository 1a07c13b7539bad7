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
	of, prefix, err := Cell(u)
	if err != nil {
		return nil, err
	}
	c, err := New(ctx, of, &Options{Prefix: prefix, own: true})
	if err != nil {
		of.Close()
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	return c, nil
}

// Cell returns a client of the cell that a store URL names, for those who use the cell itself. It makes no contact. The
// prefix stands before all names of the URL; "": none does. Errors do not show the token.
func Cell(u *url.URL) (c *cell.Client, prefix string, err error) {
	var config cell.Config
	known := []string{"hf.token-file"}
	secure := u.Scheme == schemeWithTLS
	if secure {
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return nil, "", err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, "", errors.New("store URL is malformed: it looks like cell://host:7433,host:7433/prefix")
	}
	if u.User != nil {
		if u.User.Username() != "" {
			return nil, "", errors.New("store URL has a user: a token is the password, as in cells://:TOKEN@host")
		}
		config.Token, _ = u.User.Password()
	}
	config.TokenFile = params["hf.token-file"]
	if config.Members, err = storeurl.Hosts(u.Host, defaultPort); err != nil {
		return nil, "", fmt.Errorf("%w: it looks like cell://host:7433,host:7433/prefix", err)
	}
	if secure {
		source, err := certs.New(certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]})
		if err != nil {
			return nil, "", err
		}
		config.TLS = source.Config
	}
	c, err = cell.New(config)
	return c, strings.Trim(u.Path, "/"), err
}
