// Package reconcile is the generic reconciler of all kinds. It fetches the object, handles
// spec.suspend and the finalizer, calls the steps of the kind, maps their typed outcome to
// conditions, writes the status once, and records events and metrics.
package reconcile
