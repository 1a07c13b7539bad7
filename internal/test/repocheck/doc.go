// Package repocheck is for those who work on Holdfast: the rules of this repository as tests,
// for example what may be imported, what must be documented, what a file may contain. Each
// rule is a function with two tests: one with small bad inputs, and one that applies it to
// every file of every module.
package repocheck
