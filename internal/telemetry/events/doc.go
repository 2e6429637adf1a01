// Package events hands on what happened to objects, so that no reconcile waits
// for whoever wants to know it, and so that writes go before words.
package events
