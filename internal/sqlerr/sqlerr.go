// Package sqlerr classifies the errors of SQL databases without importing their client
// libraries, by the shape of the libraries' error types.
//
//   - PostgreSQL, by pgx and lib/pq: a method SQLState() string;
//   - MySQL and MariaDB, by go-sql-driver: a field Number, an unsigned integer;
//   - SQLite, by modernc.org/sqlite, ncruces/go-sqlite3 and mattn/go-sqlite3: a method
//     or field ExtendedCode or Code, an integer, SQLite's result code.
package sqlerr

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ErrConflict: the transaction cannot go on because of another.
var ErrConflict = errors.New("transaction is in conflict with another")

// Judged returns the error, wrapped together with ErrConflict if it is a conflict.
func Judged(err error) error {
	if Conflict(err) && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// InTable returns the error with where its table comes from if it names the table, which is missing as a rule.
func InTable(table string, err error) error {
	if err == nil || Conflict(err) || !strings.Contains(err.Error(), table) {
		return err
	}
	return fmt.Errorf("%w (if there is no such table: `holdfast schema` prints the statement that makes it)", err)
}

// The databases' codes for a transaction that they give up because of another.
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
	sqliteConflicts = []int64{sqliteBusy, sqliteLocked}
)

// Result codes of SQLite.
const (
	primary            = 0xff // what an extended one shares with its primary one
	sqliteBusy         = 5
	sqliteLocked       = 6
	sqliteBusySnapshot = sqliteBusy | 2<<8
)

// Conflict reports whether the database gave up the statement or the transaction because of
// another transaction: a deadlock, a serialization failure, a lock timeout, a
// busy database. Once it is rolled back nothing of the transaction has happened, and it may
// be run again.
func Conflict(err error) bool {
	return anyOf(err, func(err error) bool {
		if e, ok := err.(interface{ SQLState() string }); ok {
			return slices.Contains(postgresConflicts, e.SQLState())
		}
		if number := field(reflect.ValueOf(err), "Number"); number.CanUint() {
			return slices.Contains(mysqlConflicts, number.Uint())
		}
		return slices.Contains(sqliteConflicts, sqliteCode(err)&primary)
	})
}

// Busy reports whether another connection is writing in the SQLite database. It is false if
// this transaction can never write because its snapshot is too old.
func Busy(err error) bool {
	return anyOf(err, func(err error) bool {
		code := sqliteCode(err)
		return code&primary == sqliteBusy && code != sqliteBusySnapshot
	})
}

// sqliteCode returns the result code of an error of SQLite, the extended one if possible,
// or 0.
func sqliteCode(err error) int64 {
	for _, name := range []string{"ExtendedCode", "Code"} {
		value := reflect.ValueOf(err)
		if method := value.MethodByName(name); method.IsValid() {
			if t := method.Type(); t.NumIn() != 0 || t.NumOut() != 1 {
				continue
			}
			value = method.Call(nil)[0]
		} else {
			value = field(value, name)
		}
		switch {
		case value.CanInt():
			return value.Int()
		case value.CanUint():
			return int64(value.Uint() & 0xffff)
		}
	}
	return 0
}

// field returns a field of a struct, or of a struct pointed at, or the zero Value. It ignores
// fields of embedded structs.
func field(value reflect.Value, name string) reflect.Value {
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	f, ok := value.Type().FieldByName(name)
	if !ok || len(f.Index) != 1 { // of an embedded struct, which may be nil
		return reflect.Value{}
	}
	return value.FieldByIndex(f.Index)
}

// anyOf reports whether the condition holds for the error or for one that it wraps.
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
