//go:build soak && linux

package docstest

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestChinesePages runs what the pages in docs/zh show.
func TestChinesePages(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	pages, err := filepath.Glob(filepath.Join(root, "docs/zh/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	for _, page := range pages {
		page = "docs/zh/" + filepath.Base(page)
		if len(blocks(page, read(t, page))) > 0 {
			newRunner(t, "redis://localhost:6379", "redis://"+server.Addr, "redis-cli ", "redis-cli -u redis://"+server.Addr+" ").page(page)
		}
	}
}

var errSoldOut = errors.New("sold out")

// buy stands in docs/zh/four-ways.md.
func buy(ctx context.Context, locks *holdfast.Client, db *sql.DB, item string) error {
	name := "stock/" + item
	return locks.Mutex(name, nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.AdmitTx(ctx, fence.MySQL, tx, name, lease.Token(), lease.Mode()); err != nil {
			return err // errors.Is(err, fence.ErrStale)
		}
		var left int
		if err := tx.QueryRowContext(ctx, "SELECT stock FROM item WHERE id = ?", item).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			return errSoldOut
		}
		if _, err := tx.ExecContext(ctx, "UPDATE item SET stock = ? WHERE id = ?", left-1, item); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// TestBuy: the last item is sold once, and not to a holder after which another one has come.
func TestBuy(t *testing.T) {
	t.Parallel()
	dsn := "root@tcp(" + testserver.StartMariaDB(t).Addr + ")/"
	exec1(t, "mysql", dsn, "CREATE DATABASE shop")
	dsn += "shop"
	exec1(t, "mysql", dsn, fence.Schema(fence.MySQL))
	exec1(t, "mysql", dsn, "CREATE TABLE item (id VARCHAR(64) PRIMARY KEY, stock INT NOT NULL)")
	exec1(t, "mysql", dsn, "INSERT INTO item VALUES ('anvil', 1)")
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	locks, err := holdfast.Open(t.Context(), "mem://buy")
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for _, want := range []error{nil, errSoldOut} {
		if err := buy(t.Context(), locks, db, "anvil"); !errors.Is(err, want) {
			t.Errorf("buying: %v, want %v", err, want)
		}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fence.AdmitTx(t.Context(), fence.MySQL, tx, "stock/anvil", 1<<40, driver.Exclusive), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	if err := buy(t.Context(), locks, db, "anvil"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("buying after a later holder: %v", err)
	}
}
