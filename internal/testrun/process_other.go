//go:build !linux

package main

// adoptOrphans does nothing: only Linux has subreapers.
func adoptOrphans() {}

// reapOrphans does nothing: there are no adopted processes.
func reapOrphans() {}
