//go:build soak

package main

import _ "unsafe" // for go:linkname

// wallJump is by how many seconds time.Now differs from the host's wall clock.
//
//go:linkname wallJump time.wallJump
var wallJump int64
