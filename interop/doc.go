// Package interop stands at the top of a module for those who work on Holdfast itself: tests that
// Holdfast, with hf.layout=setnx, and the locks of other libraries and languages exclude each other
// in one Redis.
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
// scripts/install-peers installs the libraries of other languages, in the versions of the files in
// python, node and java.
package interop
