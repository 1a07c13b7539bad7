// Package dashboards tests the dashboards and the alerts of packaging/, on a cell and a program with locks, with load
// and faults.
package dashboards
