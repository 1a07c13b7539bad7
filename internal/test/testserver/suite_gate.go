//go:build !soak

package testserver

// Soak says whether the soak runs, which is built with the tag soak. Otherwise the gate runs: no
// verdict depends on how fast the machine is.
const Soak = false
