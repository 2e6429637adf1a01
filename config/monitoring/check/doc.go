// Package check reads rules and dashboard as Prometheus does. It is a module of its own:
// Prometheus would bring newer versions of much into the controller.
package check
