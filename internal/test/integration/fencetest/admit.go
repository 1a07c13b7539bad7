package fencetest

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// admitAsGate offers tokens at random to the table of marks and to a Gate,
// which must agree on each one and on the marks.
func admitAsGate(t *testing.T, b *bench) {
	const resource = "fencetest/gate"
	asGate(t, func(token driver.Token, mode driver.Mode) error {
		return b.tx(t.Context(), func(tx *sql.Tx) error {
			return b.dialect.Admit(t.Context(), tx, resource, token, mode)
		})
	}, func() (exclusive, shared driver.Token) {
		key := any(resource)
		if b.dialect == fence.MySQL {
			key = []byte(resource)
		}
		row := b.db.QueryRowContext(t.Context(), b.sql("SELECT exclusive_mark, shared_mark FROM holdfast_fence WHERE resource = ?"), key)
		if err := row.Scan(&exclusive, &shared); err != nil {
			t.Fatal(err)
		}
		return exclusive, shared
	})
}

// asGate compares a guard in the database with one in memory.
func asGate(t *testing.T, admit func(driver.Token, driver.Mode) error, marks func() (exclusive, shared driver.Token)) {
	t.Helper()
	var gate fence.Gate
	random := rand.New(rand.NewPCG(1, 2))
	admitted, refused := 0, 0
	for i := range 200 {
		// A window that moves up, so that tokens fall on either side of marks
		// of both kinds all the way.
		token := driver.Token(i/8 + 1 + random.IntN(6))
		mode := driver.Mode(random.IntN(2))
		want, got := gate.Admit(token, mode), admit(token, mode)
		var wantStale, gotStale *fence.StaleError
		if errors.As(want, &wantStale) != errors.As(got, &gotStale) || (want == nil) != (got == nil) {
			t.Fatalf("step %d: %v token %d: the gate says %v, the database %v", i, mode, token, want, got)
		}
		if want == nil {
			admitted++
		} else {
			refused++
			if gotStale.Token != token || gotStale.Mode != mode || gotStale.Mark != 0 && gotStale.Mark != wantStale.Mark {
				t.Fatalf("step %d: %v token %d: the gate says %+v, the database %+v", i, mode, token, wantStale, gotStale)
			}
		}
		wantExclusive, wantShared := gate.Marks()
		if exclusive, shared := marks(); exclusive != wantExclusive || shared != wantShared {
			t.Fatalf("step %d: after %v token %d the marks are %d and %d, want %d and %d",
				i, mode, token, exclusive, shared, wantExclusive, wantShared)
		}
	}
	if admitted < 50 || refused < 50 {
		t.Fatalf("%d admitted, %d refused: the tokens do not try the guard", admitted, refused)
	}
}

// sameTokenAgain admits one token in several transactions and several times in
// one, which changes nothing in the row: MySQL then counts no affected row.
func sameTokenAgain(t *testing.T, b *bench) {
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		id, resource := b.account(t)
		for i := range 6 {
			err := b.tx(t.Context(), func(tx *sql.Tx) error {
				if err := b.dialect.Admit(t.Context(), tx, resource, 7, mode); err != nil {
					return err
				}
				return b.predicate(t, tx, id, 7, mode)
			})
			if err != nil {
				t.Fatalf("%v, time %d: %v", mode, i, err)
			}
		}
		err := b.tx(t.Context(), func(tx *sql.Tx) error {
			for range 2 {
				if err := b.dialect.Admit(t.Context(), tx, resource, 8, mode); err != nil {
					return err
				}
				if err := b.predicate(t, tx, id, 8, mode); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%v, twice in one transaction: %v", mode, err)
		}
	}
}

// namesApart admits a high token of one name and low ones of names that a
// careless comparison takes for the same.
func namesApart(t *testing.T, b *bench) {
	long := "fencetest/" + strings.Repeat("x", driver.MaxName-len("fencetest/")-1)
	names := []string{
		"fencetest/name", "fencetest/Name", "fencetest/name ", "fencetest/name  ", "fencetest/nam_", "fencetest/nam%",
		"fencetest/n\u00e4me", "fencetest/na\u0308me", "fencetest/\U0001F512", "fencetest/\U0001F513", "fencetest/'", `fencetest/\`,
		long + "1", long + "2",
	}
	for i, name := range names {
		token := driver.Token(len(names) - i)
		err := b.tx(t.Context(), func(tx *sql.Tx) error {
			return b.dialect.Admit(t.Context(), tx, name, token, driver.Exclusive)
		})
		if err != nil {
			t.Errorf("%q is not kept apart from the names before it: %v", name, err)
		}
	}
	err := b.tx(t.Context(), func(tx *sql.Tx) error {
		return b.dialect.Admit(t.Context(), tx, names[0], 1, driver.Exclusive)
	})
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Resource != names[0] || stale.Mark != driver.Token(len(names)) {
		t.Errorf("a stale token of %q: %v", names[0], err)
	}
}

// rolledBack admits a token in a transaction that never was.
func rolledBack(t *testing.T, b *bench) {
	_, resource := b.account(t)
	change := errors.New("changed my mind")
	err := b.tx(t.Context(), func(tx *sql.Tx) error {
		if err := b.dialect.Admit(t.Context(), tx, resource, 5, driver.Exclusive); err != nil {
			return err
		}
		return change
	})
	if !errors.Is(err, change) {
		t.Fatal(err)
	}
	err = b.tx(t.Context(), func(tx *sql.Tx) error {
		return b.dialect.Admit(t.Context(), tx, resource, 4, driver.Exclusive)
	})
	if err != nil {
		t.Errorf("a token rolled back left a mark: %v", err)
	}
}

// committedAlthoughRefused commits transactions whose token was refused, against the
// rule. That must not refuse any hold that is not stale itself.
func committedAlthoughRefused(t *testing.T, b *bench) {
	_, resource := b.account(t)
	for i, step := range []struct {
		token driver.Token
		mode  driver.Mode
		stale bool
	}{
		{2, driver.Exclusive, false},
		{5, driver.Shared, false},
		{4, driver.Exclusive, true},
		{4, driver.Exclusive, true},
		{5, driver.Shared, false},
		{6, driver.Exclusive, false},
		{5, driver.Shared, true},
		{6, driver.Exclusive, false},
		{7, driver.Shared, false},
	} {
		var refusal error
		err := b.tx(t.Context(), func(tx *sql.Tx) error {
			refusal = b.dialect.Admit(t.Context(), tx, resource, step.token, step.mode)
			return nil
		})
		if err != nil || errors.Is(refusal, fence.ErrStale) != step.stale || !step.stale && refusal != nil {
			t.Errorf("step %d: %v token %d: %v, %v", i, step.mode, step.token, refusal, err)
		}
	}
}

// noTransaction offers the pool itself, and a connection outside of a transaction and in
// one that was begun by hand.
func noTransaction(t *testing.T, b *bench) {
	_, resource := b.account(t)
	refused := func(tx fence.Tx, what string) {
		t.Helper()
		err := b.dialect.Admit(t.Context(), tx, resource, 5, driver.Exclusive)
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "transaction") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused(b.db, "a *sql.DB in place of a transaction")
	refused(struct{ fence.Tx }{b.db}, "a wrapped *sql.DB")
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	refused(conn, "a connection without a transaction")
	for range 2 {
		run("BEGIN")
		for range 2 {
			if err := b.dialect.Admit(t.Context(), conn, resource, 5, driver.Exclusive); err != nil {
				t.Errorf("a transaction begun by hand: %v", err)
			}
		}
		run("ROLLBACK")
		refused(conn, "a connection after its transaction")
	}
	if b.dialect == fence.MySQL {
		run("SET autocommit = 0")
		if err := b.dialect.Admit(t.Context(), conn, resource, 5, driver.Exclusive); err != nil {
			t.Errorf("a session that does not commit by itself: %v", err)
		}
		run("ROLLBACK")
		run("SET autocommit = 1")
	}
	// Nothing of all that has left a mark.
	err = b.tx(t.Context(), func(tx *sql.Tx) error {
		return b.dialect.Admit(t.Context(), tx, resource, 4, driver.Exclusive)
	})
	if err != nil {
		t.Errorf("a refused or rolled back token left a mark: %v", err)
	}
}
