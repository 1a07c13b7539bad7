// Package consoletest tests the console in Chromium, over real stores.
package consoletest
