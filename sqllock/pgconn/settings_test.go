package pgconn

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestSettings: what a role, a database or a URL may set for its sessions.
func TestSettings(t *testing.T) {
	server := shared(t)
	server.Query("DROP DATABASE IF EXISTS worst", "CREATE DATABASE worst TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'und-u-ks-level1' LOCALE 'C'")
	sqltest.Settings(t, func(setting string) (driver.Driver, error) {
		database := "postgres"
		if setting == "database=worst" {
			database, setting = "worst", "x.y=z"
		}
		return openURL(t.Context(), server.URL(database)+"&"+setting)
	}, []string{
		"database=worst", "default_transaction_isolation=repeatable%20read", "default_transaction_isolation=serializable",
		"lock_timeout=20", "statement_timeout=100", "idle_in_transaction_session_timeout=20", "default_transaction_deferrable=on",
		"standard_conforming_strings=off", "synchronous_commit=off", "plan_cache_mode=force_generic_plan", "DateStyle=German",
		"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol", "default_query_exec_mode=describe_exec", "search_path=public",
	}, map[string]string{"default_transaction_read_only=on": "takes no writes"})
}

func TestBesideStep(t *testing.T) {
	db := openDB(t, shared(t))
	d, err := New(t.Context(), db, nil)
	must(t, err)
	sqltest.BesideStep(t, d, db)

	sqltest.NewRow(t, together, func(split func(context.Context, *sql.Conn, []sqllock.Statement) error) driver.Driver {
		library := libraryFor(asPool(db))
		library.Together = split
		d, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, nil)
		must(t, err)
		return d
	}, d)
}
