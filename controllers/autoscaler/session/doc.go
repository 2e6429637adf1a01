// Package session talks to the agent of a cluster, apart from the reconciles.
package session
