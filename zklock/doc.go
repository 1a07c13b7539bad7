// Package zklock keeps locks in ZooKeeper, as Apache Curator lays them out.
package zklock
