// Package target resolves the cluster that an object acts on. For each remote cluster it keeps one
// live index, one discovery and one client, which all users of the cluster share; they are closed
// some time after the last user is gone. While a cluster does not answer, requests to it fail at
// once, so that no worker waits for it. Its users are notified when it answers again.
package target
