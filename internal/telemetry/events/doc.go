// Package events forwards Kubernetes events in the background, so that no reconcile waits for a
// receiver of events, and so that writes of objects have priority over events.
package events
