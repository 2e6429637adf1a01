// Package metrics exports the state of the objects of our kinds as metrics. A series exists as long
// as its object.
package metrics
