//go:build !race

package artifact

const raced = false
