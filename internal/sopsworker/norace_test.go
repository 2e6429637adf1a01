//go:build !race

package sopsworker

const raceEnabled = false
