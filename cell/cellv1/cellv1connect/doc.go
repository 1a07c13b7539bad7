// Package cellv1connect has the clients and servers of the lock service's API, made from its proto files
// by scripts/proto.
package cellv1connect
