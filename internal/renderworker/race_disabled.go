//go:build !race

package renderworker

const raced = false
