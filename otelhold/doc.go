// Package otelhold tells OpenTelemetry what happens to locks: metrics and spans of a client of any
// store of Holdfast. Where a program says
//
//	locks, err := holdfast.Open(ctx, url)
//
// one line switches them on:
//
//	locks, err := otelhold.Open(ctx, url, nil)
//
// and where it makes a client of a driver, [New] takes the place of holdfast.New. The program sets
// up the SDK and its exporters; without them nothing is measured. With that for Prometheus
// (go.opentelemetry.io/otel/exporters/prometheus) packaging/grafana/holdfast.json shows them,
// packaging/prometheus/holdfast.rules.yml has alerts, and this line lets Prometheus fetch them:
//
//	http.Handle("/metrics", promhttp.Handler())
//
// # Metrics
//
// Names of locks, owners and tokens are in no attribute, because their number has no bound.
// [Options.Class] makes classes of names. Every instrument has [Options.Attributes] too.
//
//	instrument                 kind           unit       attributes                                          of
//	holdfast.acquire.duration  histogram      s          holdfast.lock.mode, holdfast.acquire.source | error.type  an Acquire or TryAcquire, until it has a lease or an error
//	holdfast.acquire.active    updowncounter  {acquire}  holdfast.lock.mode                                  acquires that are under way
//	holdfast.hold.duration     histogram      s          holdfast.lock.mode, holdfast.hold.end | error.type  a hold, from its grant to its release or loss
//	holdfast.hold.active       updowncounter  {hold}     holdfast.lock.mode                                  holds that are neither released nor lost
//	holdfast.hold.lost         counter        {hold}     holdfast.lock.mode, error.type                      holds that were lost
//	holdfast.doubt.active      updowncounter  {hold}     holdfast.lock.mode                                  holds that are in doubt now
//	holdfast.hold.in_doubt     counter        {hold}     holdfast.lock.mode                                  holds whose renewal failed, while they are trusted
//	holdfast.hold.recovered    counter        {hold}     holdfast.lock.mode                                  holds in doubt that were renewed after all
//	holdfast.hold.expiring     counter        {hold}     holdfast.lock.mode                                  holds that are not renewed any more (MaxHold)
//	holdfast.renew.duration    histogram      s          error.type                                          a request that renews holds, several at once
//	holdfast.renew.holds       counter        {hold}     error.type                                          renewals of holds; with error.type those that failed
//	holdfast.release.duration  histogram      s          error.type                                          a request that releases holds, or takes back what is uncertain
//	holdfast.events.dropped    counter        {event}    -                                                   events that came too fast, and are missing in the others
//
// What is behind "|" is there only if it applies: error.type of what failed. All of
// holdfast.acquire, hold and doubt have holdfast.lock.class too, where there is a Class. The
// values:
//
//	holdfast.lock.mode       exclusive, shared, slot (a semaphore)
//	holdfast.acquire.source  free (the store did not tell to wait), store (it was handed over between
//	                         clients), local (it was handed over in the client, or is shared there),
//	                         reentrant (the caller had it already)
//	holdfast.hold.end        released, lost
//	error.type               of an acquire: held, timeout, canceled, deadlock, mismatch, unsupported,
//	                         uncertain, closed; of a loss: expired, not_held, broken, max_hold; of a
//	                         request all of these; _OTHER is any other error, of the store for example
//
// Several leases may share a hold: shared ones of a client, and those of Lease.Reenter. A hold that
// one goroutine hands over to the next is one for each of them.
//
// # Spans
//
// A span holdfast.acquire is a child of the caller's span, and lasts as long as the acquire: what a
// store's client traces by itself is below it. A span holdfast.hold is a child of the caller's span
// too, has a link to the acquire, and lasts until the hold is released or lost: it may end later
// than its parent. It has events in_doubt, recovered and expiring. Attributes and values are as
// above, and holdfast.acquire.try. A loss is the status Error.
//
// # Cost
//
// Metrics and spans of holds come from the client's events ([holdfast.Events]), which delay no lock.
// If some are dropped, holdfast.events.dropped counts them, and holdfast.hold.active may stay too
// high. Close of the client waits for up to 1 s until all are told: shut the SDK down after it.
package otelhold
