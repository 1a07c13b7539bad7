// Package fencetest checks the guards of package fence on real databases and on Redis, with the usual client
// libraries. It stands in a module of its own so that the guards themselves need no client.
package fencetest
