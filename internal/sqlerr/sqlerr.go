// Package sqlerr tells what a SQL database means by an error, without importing
// any client library: by the shape that the errors of these libraries have.
//
//   - PostgreSQL, by pgx and lib/pq: a method SQLState() string;
//   - MySQL and MariaDB, by go-sql-driver: a field Number, an unsigned integer;
//   - SQLite, by modernc.org/sqlite, ncruces/go-sqlite3 and mattn/go-sqlite3: a method
//     or field Code, an integer, whose low byte is SQLite's primary result code.
package sqlerr

import (
	"reflect"
	"slices"
)

// What the databases call it when they give up a transaction for another's sake.
var (
	postgresConflicts = []string{
		"40001", // serialization_failure
		"40P01", // deadlock_detected
		"55P03", // lock_not_available: lock_timeout, or NOWAIT
	}
	mysqlConflicts = []uint64{
		1020, // ER_CHECKREAD: newer than the snapshot (MariaDB)
		1205, // ER_LOCK_WAIT_TIMEOUT
		1213, // ER_LOCK_DEADLOCK
		3572, // ER_LOCK_NOWAIT
	}
	sqliteConflicts = []int64{
		5, // SQLITE_BUSY
		6, // SQLITE_LOCKED
	}
)

// sqliteCodeMask leaves the primary result code of an extended one.
const sqliteCodeMask = 0xff

// Conflict reports whether the database gave up the statement or the transaction for
// another transaction's sake: a deadlock, a serialization failure, a lock timeout, a
// busy database. Nothing of the transaction will have happened once it is rolled
// back, and it may be run again.
func Conflict(err error) bool {
	return anyOf(err, func(err error) bool {
		if e, ok := err.(interface{ SQLState() string }); ok {
			return slices.Contains(postgresConflicts, e.SQLState())
		}
		value := reflect.ValueOf(err)
		if value.Kind() == reflect.Pointer && !value.IsNil() {
			value = value.Elem()
		}
		if number := field(value, "Number"); number.CanUint() {
			return slices.Contains(mysqlConflicts, number.Uint())
		}
		code, ok := sqliteCode(err, value)
		return ok && slices.Contains(sqliteConflicts, code&sqliteCodeMask)
	})
}

// sqliteCode returns the result code of an error that has one.
func sqliteCode(err error, value reflect.Value) (int64, bool) {
	code := field(value, "Code")
	if method := reflect.ValueOf(err).MethodByName("Code"); method.IsValid() {
		if t := method.Type(); t.NumIn() != 0 || t.NumOut() != 1 {
			return 0, false
		}
		code = method.Call(nil)[0]
	}
	switch {
	case code.CanInt():
		return code.Int(), true
	case code.CanUint():
		return int64(code.Uint() & sqliteCodeMask), true
	}
	return 0, false
}

// field returns a field of a struct's own, or the zero Value.
func field(value reflect.Value, name string) reflect.Value {
	if value.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	f, ok := value.Type().FieldByName(name)
	if !ok || len(f.Index) != 1 { // an embedded struct's, which may be nil
		return reflect.Value{}
	}
	return value.FieldByIndex(f.Index)
}

// anyOf reports whether it is so of the error or of one that it wraps.
func anyOf(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return anyOf(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return anyOf(err, is) })
	}
	return false
}
