// Package probe checks whether the API servers of other clusters respond. It does not trust them:
// of a response it returns only a validated version, a validated UID and a number of nodes.
package probe
