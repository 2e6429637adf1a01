// Package provisioner is how our agent has machines made and deleted: by a program, so that any
// cloud can be served by whoever writes one.
//
// The program is started for each thing that is to be done. It reads one [Request] as JSON on its
// standard input, writes one [Answer] as JSON on its standard output and ends with status 0.
// What it writes to standard error goes to the agent's log, clipped. It is killed, with all that it
// started, when the time is over that the request names, or when the agent ends.
//
// What is asked for is a state, not a step: a program that is asked again for what is already so
// answers success and changes nothing. It is never asked for two things of a cluster at a time,
// except that it may be asked to list while it makes or deletes.
package provisioner
