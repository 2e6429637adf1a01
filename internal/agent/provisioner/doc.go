// Package provisioner defines the contract between the agent and the programs that create and
// delete machines. A program can be written for any cloud.
//
// The agent starts the program once per request. The program reads one [Request] as JSON from
// standard input, writes one [Response] as JSON to standard output and exits with status 0. The
// agent logs its standard error output, up to a limit. The agent kills the program, including its
// child processes, at the deadline of the request or when the agent shuts down.
//
// Requests are declarative and idempotent: if the requested state is already reached, the program
// returns success and changes nothing. The agent sends at most one Create or Delete at a time for a
// cluster, but may send List in parallel.
package provisioner
