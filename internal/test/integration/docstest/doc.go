// Package docstest holds the documentation against the programs: the commands and programs of
// README.md and of the pages in docs/stores are run, against real servers with the rights that the
// pages give, and the tables of settings name what URLs take.
package docstest
