package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the client of PostgreSQL
	_ "modernc.org/sqlite"             // the client of SQLite

	"github.com/holdfastlock/holdfast/driver"
)

// shopPool is how many connections to the database a process has at most.
const shopPool = 8

// openShop opens the database of a URL: postgres://, mysql://, or a file of SQLite
// (file://).
func openShop(place string) (*shop, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, errors.New("demo: the database's URL is malformed") // it may hold a password
	}
	var db *sql.DB
	var w words
	switch u.Scheme {
	case "postgres", "postgresql":
		w = postgresWords
		db, err = sql.Open("pgx", place)
	case "mysql":
		w = mysqlWords
		db, err = openMySQL(u)
	default:
		w = sqliteWords
		db, err = sql.Open("sqlite", sqliteDSN(u))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the client library does not understand the URL", driver.Redact(u))
	}
	db.SetMaxOpenConns(shopPool)
	db.SetMaxIdleConns(shopPool)
	return &shop{db, w, place}, nil
}

func openMySQL(u *url.URL) (*sql.DB, error) {
	config, err := mysql.ParseDSN("tcp(127.0.0.1)/?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "3306"
	}
	config.Addr, config.DBName = net.JoinHostPort(host, port), strings.Trim(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // errors are returned
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// sqliteDSN returns the client's name of a file. Readers and a writer work side by side
// (the write-ahead log), writers wait for each other (the busy timeout), and a
// transaction takes its turn as a writer when it begins.
//
// With a plain BEGIN, SQLite refuses to write in a transaction whose reads are
// out of date. Most databases, at their default isolation, do not, and here the
// reads are made before the transaction, as where the one is a method of a
// repository and the other of a unit of work.
func sqliteDSN(u *url.URL) string {
	dsn := *u
	dsn.RawQuery = url.Values{
		"_pragma": {"busy_timeout(20000)", "journal_mode(wal)", "synchronous(normal)"},
		"_txlock": {"immediate"},
	}.Encode()
	return dsn.String()
}

// openPlace makes a place for a run's tables, and these, and opens it. The function that it
// returns closes and removes it.
func (d *demonstration) openPlace(ctx context.Context, stock int) (*shop, func() error, error) {
	place, remove, err := d.place(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	s, err := openShop(place)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("demo: %w", err), remove())
	}
	end := func() error { return errors.Join(s.Close(), remove()) }
	if err := s.create(ctx, stock); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("demo: %w", err), end())
	}
	return s, end, nil
}

// place makes an empty place for a run's tables, and returns its URL and what removes
// it. Where the locks are in a database, the shop is too: in a schema of its own, which
// MySQL calls a database. Nobody else's has its name.
func (d *demonstration) place(ctx context.Context) (place string, remove func() error, err error) {
	u, err := driver.ParseURL(d.Store)
	if err != nil {
		return "", nil, err
	}
	query := u.Query()
	for key := range query {
		if strings.HasPrefix(key, "hf.") { // not the client library's
			query.Del(key)
		}
	}
	name := fmt.Sprintf("holdfast_demo_%s_%d", strings.ToLower(d.id), d.runs)
	var create, drop string
	switch u.Scheme {
	case "postgres", "postgresql":
		query.Set("search_path", name)
		create, drop = "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE"
	case "mysql":
		create, drop = "CREATE DATABASE "+name, "DROP DATABASE "+name
	default:
		file := filepath.ToSlash(filepath.Join(d.dir, name+".db"))
		if !strings.HasPrefix(file, "/") { // C:/…
			file = "/" + file
		}
		// It goes with the demonstration's directory.
		return (&url.URL{Scheme: "file", Path: file}).String(), func() error { return nil }, nil
	}
	u.RawQuery = query.Encode()
	if err := d.execute(ctx, u, create); err != nil {
		return "", nil, fmt.Errorf("the demonstration needs a schema of its own in %s: %w", driver.Redact(u), err)
	}
	inside := *u
	if u.Scheme == "mysql" {
		inside.Path = "/" + name
	}
	return inside.String(), func() error {
		// Also when the context has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWithin)
		defer cancel()
		if err := d.execute(ctx, u, drop); err != nil {
			return fmt.Errorf("demo: %s is left behind: %w", name, err)
		}
		return nil
	}, nil
}

// dropWithin bounds the removal of a run's tables.
const dropWithin = 15 * time.Second

// execute runs one statement on a connection of its own.
func (d *demonstration) execute(ctx context.Context, u *url.URL, statement string) error {
	db, err := openShop(u.String())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
