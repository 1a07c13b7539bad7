// Package cell is the client of the lock service that "holdfast serve" runs: sessions with a cell of
// one, three or five members.
//
// Locks have a simpler package: celllock, a store like others for package holdfast. It stands on this
// one. Programs in other languages speak to a cell by Connect, gRPC or plain HTTP with JSON: see the
// proto files.
package cell
