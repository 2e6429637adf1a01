// Package target finds the cluster that an object of ours acts on, and keeps what is known of
// each: one live index, discovery and client, shared by all who use it, and closed some time
// after the last. Where a cluster does not answer, requests to it fail at once, so that nobody
// waits for it in a worker, and whoever uses it is woken when it answers again.
package target
