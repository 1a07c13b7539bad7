// Package interop stands at the top of a module for those who work on Holdfast itself: tests that
// Holdfast and the locks of other libraries and languages exclude each other in one Redis, with
// hf.layout=setnx, that with hf.layout=redisson they are those of Redisson, that Holdfast's locks in
// ZooKeeper are those of Apache Curator, and that clients of a cell in other languages are right.
//
// Each peer is a process of its own, which uses its library as a program does. It reads one command a
// line from standard input, and answers each with one line:
//
//	lock NAME TTL_MS    tries once: held, busy
//	extend TTL_MS       of the lock that it has or had: ok, lost
//	unlock              the same: ok, lost
//	count NAME FILE N   N times increments the number in a file under the lock: ok
//
// A peer writes "ready" first, ends with standard input, and writes an error to standard error and ends.
//
// # Services
//
// For Curator, for Redisson and for Holdfast, which is killed and stopped as the others are, a program is many services,
// each with a client of its own. A line begins with the service's name; an answer has = behind it, and an event, which
// comes at any time, an exclamation mark:
//
//	S open SERVERS MS              the session's length, or the TTL: ok
//	S lock HANDLE KIND PATH MS     waits for so long, 0 tries once, -1 waits for ever: held, busy
//	S end HANDLE                   of the lock, or of the candidacy: ok, lost
//	S downgrade HANDLE             from writing to reading: ok
//	S count KIND PATH FILE N       N times increments the number in a file under the lock: ok
//	S burst KIND PATH N            takes and ends the lock N times: how many nanoseconds that took
//	S look KIND PATH FILE N        N times reads it twice under the lock, which must be the same: ok
//	S crowd KIND PATH DIR N        N times has a file there for each permit, which must not be too many: ok;
//	                               the event at N follows each 100 times of these three
//	S revoke PATH                  asks the holder for the lock: ok; the holder has the event revoked PATH
//	S latch HANDLE PATH ID         campaigns: ok; then the events leader HANDLE, deposed HANDLE
//	S selector HANDLE PATH ID      the same
//	S leader latch|selector PATH   the ids in their order: ID of ID,ID…
//	S participants PATH            how many hold the mutex and wait for it
//	S data PATH                    the note of its holder
//	S token HANDLE                 of a fenced lock: its token
//	S force NAME                   breaks an RLock: ok, free
//	S lease HANDLE KIND NAME S     waits for a lock, which nothing renews and which ends after S seconds: held; Redisson only
//	S waiters KIND NAME N          N threads wait for the lock, and end it: ok when all have had it; the event done
//	                               follows each; Redisson only
//	S trytoken HANDLE NAME         tries a fenced lock once, by another method: held, busy; Redisson only
//	S countdown create NAME N      of a latch: ok, busy if it is there; also down NAME, await NAME MS, count NAME;
//	                               delete NAME, Holdfast only
//	S close                        ok
//
// KIND is mutex, read, write, multi (with paths separated by commas) or semaphore:SLOTS:PERMITS; with
// Curator also revocable and single; with Redisson also fair, fenced, spin, red (of redlock://)
// and counted:SLOTS:PERMITS, which is an RSemaphore; permits of Redisson's end after semaphore:SLOTS:PERMITS:MS. Events also are the states of Curator's connection, and lost HANDLE.
//
// # Clients of a cell
//
// A peer of the cell has one of the clients of docs/cell-clients, and one session; its arguments are the
// members and the TTL in milliseconds. Tokens must grow from one increment to the next.
//
//	lock NAME MS         waits for so long, 0 tries once: held, busy
//	check                of the lock that it has or had: ok, lost: WHY
//	unlock               the same
//	count NAME FILE N    N times increments the number in a file under the lock: ok
//
// scripts/install-peers installs the libraries of other languages, in the versions of the files in
// python and java. Folder node has the peer in JavaScript, which needs no library, and what scripts/proto needs.
package interop
