//go:build !race

package sopsworker

const raced = false
