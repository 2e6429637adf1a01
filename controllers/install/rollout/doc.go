// Package rollout installs a stack on many clusters, one after the other.
package rollout
