// Package reconcile is the one skeleton that every kind's controller runs in:
// fetch, suspend, finalizer, the kind's steps, one typed outcome, conditions,
// one status write, events and metrics.
package reconcile
