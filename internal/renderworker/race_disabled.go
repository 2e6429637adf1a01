//go:build !race

package renderworker

const raceEnabled = false
