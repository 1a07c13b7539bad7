//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

// identity returns what names a directory in every process of the host. Here it is the path.
func identity(dir string) string { return dir }
