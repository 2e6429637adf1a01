//go:build race

package renderworker

const raceEnabled = true
