// Package interop stands at the top of a module for those who work on Holdfast itself: tests that
// Holdfast and the locks of other libraries and languages exclude each other in one Redis, with
// hf.layout=setnx, and that Holdfast's locks in ZooKeeper are those of Apache Curator.
//
// Each peer is a process of its own, which uses its library as a program does. It reads one command a
// line from standard input, and answers each with one line:
//
//	lock NAME TTL_MS    tries once: held, busy
//	extend TTL_MS       of the lock that it has or had: ok, lost
//	unlock              the same: ok, lost
//	count NAME KEY N    N times waits for the lock, reads the number at a key, and writes it plus one: ok
//	set KEY VALUE       writes, as a holder does that does not know that it is late: ok
//
// A peer writes "ready" first, ends with standard input, and writes an error to standard error and ends.
// One of them is Holdfast, so that it can be killed and stopped as the others are.
//
// # ZooKeeper
//
// Here a program is many services, each with a session of its own. A line begins with the service's
// name; an answer has = behind it, and an event, which comes at any time, an exclamation mark:
//
//	S open SERVERS MS              the session's length: ok
//	S lock HANDLE KIND PATH MS     waits for so long, 0 tries once, -1 waits for ever: held, busy
//	S end HANDLE                   of the lock, or of the candidacy: ok, lost
//	S downgrade HANDLE             from writing to reading: ok
//	S count KIND PATH FILE N       N times increments the number in a file under the lock: ok
//	S look KIND PATH FILE N        N times reads it twice under the lock, which must be the same: ok
//	S crowd KIND PATH DIR N        N times has a file there for each permit, which must not be too many: ok
//	S revoke PATH                  asks the holder for the lock: ok; the holder has the event revoked PATH
//	S latch HANDLE PATH ID         campaigns: ok; then the events leader HANDLE, deposed HANDLE
//	S selector HANDLE PATH ID      the same
//	S leader latch|selector PATH   the ids in their order: ID of ID,ID…
//	S participants PATH            how many hold the mutex and wait for it
//	S data PATH                    the note of its holder
//	S close                        ok
//
// KIND is mutex, revocable, read, write, single, multi (with paths separated by commas) or
// semaphore:SLOTS:PERMITS. Events also are the states of Curator's connection, and lost HANDLE.
//
// scripts/install-peers installs the libraries of other languages, in the versions of the files in
// python, node and java.
package interop
