// Package release tests what users get: the tags of scripts/release, installed by the go command as
// the documentation says, and the command of one release beside that of the next on one store.
package release
