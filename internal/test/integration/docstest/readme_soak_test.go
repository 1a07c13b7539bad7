//go:build soak && linux

package docstest

import (
	"context"
	"database/sql"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/optimistic"
	"github.com/holdfastlock/holdfast/txlock"
)

// TestReadme runs the commands and programs of README.md.
func TestReadme(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	r := newRunner(t)
	r.replace = strings.NewReplacer(
		"redis://localhost:6379", "redis://"+server.Addr,
		"file:///var/tmp/hello", "file://"+r.dir+"/hello", "5 * time.Second", "5 * time.Millisecond",
		"-o bin/holdfast", "-o "+r.dir+"/bin/holdfast",
		"/usr/local/bin/cleanup", "true", "/usr/local/bin/report", "echo",
	)
	r.page("README.md")
}

func TestPages(t *testing.T) {
	for _, page := range []string{"docs/from-redsync.md", "docs/from-curator.md", "docs/from-redisson.md", "docs/from-flock.md", "docs/testing.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			r.replace = strings.NewReplacer("/var/tmp", r.dir)
			r.page(page)
		})
	}
}

// TestFromSetNX runs the commands of the page beside a real server.
func TestFromSetNX(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	r := newRunner(t)
	r.replace = strings.NewReplacer(
		"redis://localhost:6379", "redis://"+server.Addr, "redis-cli ", "redis-cli -u redis://"+server.Addr+" ",
	)
	r.page("docs/from-setnx.md")
}

// TestReadmeModules follows README's steps for a store's module, for each module that it names: the
// program with that import builds, outside of the workspace.
func TestReadmeModules(t *testing.T) {
	var steps, program string
	for _, b := range blocks("README.md", read(t, "README.md")) {
		switch {
		case strings.HasPrefix(b.text, "package main"):
			program = b.text
		case strings.HasPrefix(b.text, "go mod init"):
			steps = strings.Replace(b.text, "go run .\n", "", 1)
		case strings.HasPrefix(b.text, "MODULE="):
			steps += b.text
		}
	}
	for _, module := range []string{
		"redislock/rueidisconn", "redislock/goredisconn", "etcdlock", "zklock", "celllock", "sqllock/pgconn", "sqllock/mysqlconn", "sqllock/sqliteconn",
	} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			text := strings.Replace(program, "holdfast/filelock", "holdfast/"+module, 1)
			if err := os.WriteFile(filepath.Join(r.dir, "main.go"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r.shell(module, strings.Replace(steps, "MODULE=redislock/rueidisconn", "MODULE="+module, 1)+"go vet .", "")
		})
	}
}

// TestClassicForms runs the forms without a lease that README shows.
func TestClassicForms(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	ctx := t.Context()
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE TABLE account (id int PRIMARY KEY, balance int)", "INSERT INTO account VALUES (7, 100), (9, 0)",
		"CREATE TABLE item (id int PRIMARY KEY, version bigint NOT NULL, price int)", "INSERT INTO item VALUES (42, 1, 100)",
		"CREATE TABLE run (job text, instant bigint, PRIMARY KEY (job, instant))", txlock.Postgres.Schema(),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := txlock.Postgres.Create(ctx, db, "account/7", "account/9"); err != nil {
		t.Fatal(err)
	}
	const amount = 30
	if err := moveMoney(ctx, db, amount); err != nil {
		t.Fatal(err)
	}
	if err := cutPrice(ctx, db); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 0} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		result, err := claimRun(ctx, tx, "nightly", 1)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := result.RowsAffected(); err != nil || n != want {
			t.Errorf("claim %d: %d rows, %v", i, n, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]string{
		"SELECT balance FROM account WHERE id = 7": "70", "SELECT balance FROM account WHERE id = 9": "30",
		"SELECT price FROM item": "90",
	} {
		if got := scalar(t, db, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func transfer(ctx context.Context, tx *sql.Tx, from, to, amount int) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + CASE id WHEN $1 THEN -$3::int ELSE $3::int END WHERE id IN ($1, $2)", from, to, amount)
	return err
}

func moveMoney(ctx context.Context, db *sql.DB, amount int) error {
	// Retry runs the transaction again after a deadlock or a conflict.
	err := optimistic.Retry(ctx, db, nil, func(tx *sql.Tx) error {
		// Lock sorts the names, so two transfers cannot deadlock.
		if err := txlock.Postgres.Lock(ctx, tx, "account/7", "account/9"); err != nil {
			return err
		}
		return transfer(ctx, tx, 7, 9, amount)
	})
	if err != nil {
		log.Print(err)
	}
	return err
}

func cutPrice(ctx context.Context, db *sql.DB) error {
	items := optimistic.Table{
		Dialect: optimistic.Postgres, Name: "item", Key: "id", Columns: []string{"price"},
	}
	err := items.Update(ctx, db, 42, nil, func(row optimistic.Row) ([]any, error) {
		var price int
		err := row.Scan(&price)
		return []any{price * 9 / 10}, err
	})
	return err
}

func claimRun(ctx context.Context, tx *sql.Tx, job string, instant int64) (sql.Result, error) {
	const insert = "INSERT INTO run (job, instant) VALUES ($1, $2) ON CONFLICT DO NOTHING"
	result, err := tx.ExecContext(ctx, insert, job, instant)
	// RowsAffected is 1 for the first, 0 for all others
	return result, err
}

// TestReadmeNamesAll: README names each module of a store, each command and each exit code of run.
func TestReadmeNamesAll(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	for _, m := range regexp.MustCompile(`(?m)^\t\./(\S*(?:conn|lock))$`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		if !strings.Contains(readme, "`"+m[1]+"`") {
			t.Errorf("README does not name the module %s", m[1])
		}
	}
	r := newRunner(t)
	r.shell("help", "holdfast --help", "")
	_, list, _ := strings.Cut(r.last, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	commands := regexp.MustCompile(`(?m)^  (\S+)`).FindAllStringSubmatch(list, -1)
	if len(commands) < 8 {
		t.Fatalf("holdfast --help lists the commands %v", commands)
	}
	for _, m := range commands {
		if m[1] != "help" && !strings.Contains(readme, "`holdfast "+m[1]+"`") {
			t.Errorf("README does not name holdfast %s", m[1])
		}
	}
	r.shell("help", "holdfast run --help", "")
	_, text, _ := strings.Cut(r.last, "Exit codes:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	var said, have []string
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)   ?\S`).FindAllStringSubmatch(text, -1) {
		said = append(said, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(readme, -1) {
		have = append(have, m[1])
	}
	if len(said) == 0 || !slices.Equal(said, have) {
		t.Errorf("README has the exit codes %v, holdfast run --help %v", have, said)
	}
}
