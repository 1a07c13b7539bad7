package sqllock

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/life"
	"github.com/holdfastlock/holdfast/internal/record"
)

// DefaultPrefix is what the tables' names begin with.
const DefaultPrefix = "holdfast"

// tokenBlock is driver.Caps.TokenBlock.
const tokenBlock = 4096

// Options configure a driver. The zero value is right for almost everybody.
type Options struct {
	// Prefix begins the names of the tables, PREFIX_locks, PREFIX_places and PREFIX_meta: up to MaxPrefix
	// lower-case letters, digits and underscores that begin with a letter; before them may stand a schema and a
	// dot. Drivers with different prefixes are different stores. In PostgreSQL a role's search_path says in which
	// schema the tables are if the prefix does not; they are not made there if another schema has them. "":
	// DefaultPrefix.
	Prefix string
	// Poll is Caps.Poll, at least 1 ms. It is fixed when the tables are made, and another one is refused from then
	// on. 0: that of the tables, at first driver.DefaultPoll.
	Poll time.Duration
	// MaxTTL is the longest TTL, with its lock-delay, at least 1 ms; longer ones are refused. A server that has taken over
	// from another may have forgotten holds, so it grants nothing for so long, and a hundredth more; likewise a restarted
	// one that does not sync its commits, where the server tells. All clients should have the same. 0: 30 s. SQLite does
	// not have the rule.
	MaxTTL time.Duration
	// Forget lets such a server grant at once, so that it may grant what another client still holds. It is for locks
	// that save work and protect nothing, and for tests.
	Forget bool
	// Unlogged makes tables of PostgreSQL that the server does not log, so that it writes nothing through to the disk for
	// a lock. A crash and a promotion empty them, and then the server grants nothing as if it had taken over. Tables that
	// are logged are refused. Those that are there and are not logged are used either way.
	Unlogged bool
	// Clock is the clock that leases are trusted by. nil: driver.HostClock.
	Clock driver.Clock
	// Log is told when notifications do not arrive, and when the pool has one connection. nil: slog.Default().
	Log *slog.Logger
}

// ParseURL returns the options that a store URL has, never nil, and its other parameters, which are the client
// library's. For SQLite there may be none of these.
func ParseURL(u *url.URL, d Dialect) (o *Options, theirs url.Values, err error) {
	known := map[Dialect][]string{
		Postgres: {"hf.tables", "hf.maxttl", "hf.forget", "hf.durable"}, MySQL: {"hf.tables", "hf.maxttl", "hf.forget"}, SQLite: {"hf.tables"},
	}[d]
	params, err := driver.Params(u, d != SQLite, known...)
	o = &Options{Prefix: cmp.Or(params["hf.tables"], DefaultPrefix)}
	if err == nil {
		o.MaxTTL, o.Forget, err = life.Params(params)
	}
	if durable := params["hf.durable"]; durable != "" && durable != "yes" && durable != "no" {
		err = cmp.Or(err, fmt.Errorf("hf.durable %.40q: yes and no are known", durable))
	} else {
		o.Unlogged = durable == "no"
	}
	theirs = u.Query()
	for _, name := range known {
		theirs.Del(name)
	}
	return o, theirs, cmp.Or(err, o.check(d))
}

func (o *Options) check(d Dialect) error {
	switch {
	case !d.Known():
		return d.Check()
	case o.Unlogged && d != Postgres:
		return errors.New("only PostgreSQL has unlogged tables")
	case o.Poll != 0 && o.Poll < time.Millisecond:
		return fmt.Errorf("poll %v is too short: at least 1 ms", o.Poll)
	}
	return cmp.Or(CheckPrefix(cmp.Or(o.Prefix, DefaultPrefix)), life.Check(o.MaxTTL, o.Forget || d == SQLite))
}

// client is the driver over one pool.
type client struct {
	pool       *pool
	dialect    Dialect
	library    Library
	statements *statements
	rules      life.Rules // zero: the rule of package life is not kept
	opening    atomic.Pointer[opening]
	bells      *bells
	clock      driver.Clock
	log        *slog.Logger
	caps       driver.Caps
	// channel is where PostgreSQL notifies this client of hand-offs and losses. "": it polls.
	channel     string
	unsubscribe func()

	mu          sync.Mutex
	interrupted bool               // notifications do not arrive at present
	waiters     map[string]*waiter // by owner
	crowds      map[string]bool    // names for which others waited lately
	tombstones  record.Tombstones  // of withdrawn owners, all of whose requests had been answered
	polling     bool               // the poller is at work
	newcomer    chan struct{}      // one value: the poller has more to poll for
	losses      chan driver.Loss
	life        context.Context // of the client's own work, which ends with it
	stop        func()          // ends it
	working     sync.WaitGroup  // goroutines
}

// New returns a driver over a pool. It makes first contact: it creates the tables unless they are there, reads
// which store this is and, in PostgreSQL, listens. Nil options are fine.
func New(ctx context.Context, db *sql.DB, dialect Dialect, library Library, o *Options) (driver.Driver, error) {
	p := joinPool(db, library)
	c, err := newClient(ctx, p, dialect, library, o)
	if err != nil {
		return nil, ctxerr.Of(ctx, errors.Join(err, p.leave()))
	}
	c.working.Go(c.cleanLoop)
	return c, nil
}

func newClient(ctx context.Context, p *pool, dialect Dialect, library Library, o *Options) (*client, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(dialect); err != nil {
		return nil, err
	}
	prefix := cmp.Or(o.Prefix, DefaultPrefix)
	c := &client{
		pool: p, dialect: dialect, library: library, statements: newStatements(dialect, prefix, dialect != SQLite && !o.Forget),
		clock: cmp.Or(o.Clock, driver.HostClock), log: cmp.Or(o.Log, slog.Default()), waiters: map[string]*waiter{}, crowds: map[string]bool{},
		newcomer: make(chan struct{}, 1), losses: make(chan driver.Loss, 16),
	}
	c.life, c.stop = context.WithCancel(context.Background())
	c.bells = newBells(c)
	if c.opening.Store(&opening{}); !c.statements.waits {
		c.opening.Store(&opening{until: math.MaxInt64})
	}
	var err error
	if library.Learn != nil {
		_, err = c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error { return library.Learn(ctx, conn, &c.library) })
	}
	if err == nil {
		err = c.open(ctx, prefix, o)
	}
	if err == nil {
		err = c.fixSchema(ctx, prefix)
	}
	if err == nil && dialect == Postgres {
		err = c.learnUnlogged(ctx, o.Unlogged)
	}
	if err == nil && c.statements.waits {
		c.rules.MaxTTL = cmp.Or(o.MaxTTL, life.UsualTTL)
		if _, err = c.request(ctx, usual, c.begin); err != nil {
			err = fmt.Errorf("whether this server may have forgotten locks cannot be told, or written down: %w (hf.forget=go does without)", err)
		}
	}
	if err != nil {
		return nil, &driver.OpenError{Err: err}
	}
	c.caps = driver.Caps{
		Store: c.caps.Store, Poll: c.caps.Poll, TokenBlock: tokenBlock,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: time.Millisecond, MaxTTL: cmp.Or(c.rules.MaxTTL, life.Bound),
		Guarantees: remembered(guarantees[dialect], c.rules, c.statements.unlogged),
	}
	if p.library.Stats().MaxOpenConnections == 1 {
		c.log.Warn("holdfast: the pool has one connection, so renewals wait for any other request: allow it two",
			"store", c.caps.Store)
	}
	switch {
	case c.library.Listen != nil:
		c.channel, c.unsubscribe = c.library.Listen(c.receive)
	case dialect == Postgres:
		c.log.Warn("holdfast: PostgreSQL's notifications do not arrive through a pooler, so waiters poll", "store", c.caps.Store)
		c.caps.Guarantees.Summary += " Notifications do not arrive on this connection: waiters poll."
	}
	return c, nil
}

// open reads what the store is. The first client of all creates the tables and gives the store a random name: its
// address would depend on how it is reached.
func (c *client) open(ctx context.Context, prefix string, o *Options) error {
	values, missing := c.readMeta(ctx)
	if missing != nil {
		for _, text := range creation(c.dialect, prefix, o.Unlogged) {
			if err := c.run(ctx, Statement{Text: text}); err != nil {
				return fmt.Errorf("the tables cannot be read (%w) nor created"+
					" (`holdfast schema` prints the statements for those who may): %w", missing, err)
			}
		}
	}
	if len(values) < 3 {
		us := strconv.FormatInt(micros(cmp.Or(o.Poll, driver.DefaultPoll)), 10)
		for _, pair := range [][2]any{{"version", schemaVersion}, {"store", rand.Text()}, {"poll", us}} {
			if err := c.run(ctx, c.statements.bound(writeMetaText, pair[:]...)); err != nil {
				return err
			}
		}
		if values, missing = c.readMeta(ctx); missing != nil {
			return missing
		}
	}
	us, err := strconv.ParseInt(values["poll"], 10, 64)
	c.caps.Store, c.caps.Poll = c.dialect.String()+":"+values["store"], duration(us)
	switch {
	case values["version"] != schemaVersion:
		return fmt.Errorf("the tables are of version %q; this program knows %s", values["version"], schemaVersion)
	case err != nil || us < 1000 || values["store"] == "":
		return fmt.Errorf("table %s_meta is damaged: it says that the poll is %q", c.statements.prefix, values["poll"])
	case o.Poll != 0 && o.Poll != c.caps.Poll:
		return fmt.Errorf("poll %v: this store's is %v, fixed when its tables were made", o.Poll, c.caps.Poll)
	}
	return nil
}

// run runs a statement as a request.
func (c *client) run(ctx context.Context, s Statement) error {
	_, err := c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error {
		return c.together(ctx, conn, []Statement{s})
	})
	return err
}

func (c *client) readMeta(ctx context.Context) (map[string]string, error) {
	var values map[string]string
	_, err := c.request(ctx, usual, func(ctx context.Context, conn *sql.Conn) error {
		values = map[string]string{}
		return c.scan(ctx, conn, c.statements.bound(readMetaText), func(scan func(...any) error) error {
			var name, value string
			err := scan(&name, &value)
			values[name] = value
			return err
		})
	})
	return values, err
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// alive returns an error if the client is closed or the context has ended.
func (c *client) alive(ctx context.Context) error {
	if c.life.Err() != nil {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// Close implements driver.Driver.
func (c *client) Close() error {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return driver.ErrClosed
	}
	c.stop()
	close(c.losses)
	for owner := range c.waiters {
		c.pool.waiters.Delete(owner)
	}
	c.mu.Unlock()
	if c.unsubscribe != nil {
		c.unsubscribe()
	}
	c.working.Wait()
	c.bells.close()
	return c.pool.leave()
}
