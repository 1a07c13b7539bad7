//go:build !soak

package main

// wallJump changes nothing here: no test of the gate sets a clock.
var wallJump int64
