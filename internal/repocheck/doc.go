// Package repocheck holds the rules of this repository as tests: what may be
// imported, what must be documented, what a file may contain. Each rule is a
// function that is itself tested with a small bad input, and a test that
// applies it to every file of every module.
package repocheck
