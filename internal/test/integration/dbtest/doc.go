// Package dbtest tests packages txlock and optimistic, and their documentation's
// statements on databases, with real ones: PostgreSQL, MariaDB, MySQL 8 and SQLite, each at every
// level of isolation. It stands in a module of its own so that the tested packages need no client.
package dbtest
