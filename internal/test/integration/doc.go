// Package integration stands at the top of a module for those who work on Holdfast
// itself: tests against real servers, and measurements beside other libraries, which need
// client libraries that the tested packages must not require.
package integration
