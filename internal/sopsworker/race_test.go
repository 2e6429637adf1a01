//go:build race

package sopsworker

const raceEnabled = true
