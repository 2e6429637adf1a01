// Package sopsworker has files decrypted and encrypted by a program of its own, cmd/sops-worker. The
// libraries for that take as much memory as the rest of the controller, in which most files are
// not encrypted; and what a stranger encrypted can't harm a process that ends after it.
//
// The program reads one request as JSON and writes one answer. It is started for each file, knows nothing of the
// environment, and is stopped when it takes too long or too much memory.
package sopsworker
