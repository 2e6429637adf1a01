// Package check tests the alerting rules and the dashboard with Prometheus' own parser and engine.
// It is a separate Go module, because Prometheus requires newer versions of many of the
// controller's dependencies.
package check
