package cli

import (
	"context"
	"strings"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/celllock"
)

// cellStore is a cell that commands speak to as such, and not as a store of locks.
type cellStore struct {
	*cell.Client
	prefix string // of the URL; "" or with a slash at its end
}

// openCell returns a client of the cell that the store URL names. It makes no contact.
func (a *app) openCell() (*cellStore, error) {
	u, err := a.parseStore()
	if err != nil {
		return nil, err
	}
	if u.Scheme != "cell" && u.Scheme != "cells" {
		return nil, usagef("the store is %s: this is for a cell, cell://HOST:PORT", u.Scheme+"://")
	}
	config, prefix, err := celllock.Config(u)
	if err != nil {
		return nil, usagef("the store URL is wrong: %w", err)
	}
	c, err := cell.New(config)
	if err != nil {
		return nil, usagef("the store URL is wrong: %w", err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &cellStore{c, prefix}, nil
}

// withCell calls a function with a client of the cell, within the time that commands have.
func (a *app) withCell(ctx context.Context, do func(context.Context, *cellStore) error) error {
	c, err := a.openCell()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	return do(ctx, c)
}

// in returns a path as the cell has it, and out one as the user has it.
func (c *cellStore) in(path string) string  { return c.prefix + path }
func (c *cellStore) out(path string) string { return strings.TrimPrefix(path, c.prefix) }
