// Package sopsworker decrypts and encrypts files in separate processes, which run cmd/sops-worker.
// The libraries for that need as much memory as the rest of the controller, although most files are
// not encrypted. A separate process also limits the harm of a malicious file: it exits after one
// file.
//
// The worker process reads one request as JSON from its standard input and writes one response to
// its standard output. One process is started per file. It inherits no environment, and it is
// killed if it exceeds its timeout or its memory limit.
package sopsworker
