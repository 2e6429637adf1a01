// Package renderworker renders stacks in separate worker processes. A goroutine that loops or
// exhausts memory cannot be stopped, but a process can be killed.
//
// A [Pool] starts workers on demand and reuses them. It kills workers that exceed a limit or stay
// idle for too long. A worker is this program, started with the argument [Command]. It reads
// requests from its standard input and writes replies to its standard output, one at a time, as
// length-prefixed JSON. It inherits nothing else: no environment, no open files and no sensitive
// arguments. On Linux it also denies itself network access and running programs.
//
// A worker exits when its standard input is closed. The kernel kills it when its parent process
// dies.
package renderworker
