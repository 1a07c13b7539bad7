// Package drivertest is the conformance suite of Holdfast's drivers. Each case
// names the promise that a failure breaks (P1 to P11 of docs/design.md).
package drivertest
