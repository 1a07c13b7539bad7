// Package cellv1 has the messages of the lock service's API, made from its proto files by scripts/proto.
package cellv1
