// Package renderworker has stacks rendered by processes of their own: a goroutine
// that loops or eats memory can't be ended, a process can.
//
// A [Pool] starts workers, which are this program with the argument [Command],
// when there is something to render, uses them again, ends those that meet a bound
// and those that nobody needs. A worker reads requests from its standard input and
// writes replies to its standard output, one after the other, as frames of JSON. It
// inherits nothing else: no environment, no open files, no arguments that tell
// anything. Where the kernel lets it, it gives up the network and running programs.
//
// A worker ends when its standard input does, and is killed when the process dies
// that started it.
package renderworker
