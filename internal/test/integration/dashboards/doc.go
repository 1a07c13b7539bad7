// Package dashboards tests the dashboard and the alerts of packaging/, on a cell with load and faults.
package dashboards
