// Package bysource removes objects that the ksctl command line, kubectl or Helm installed. It
// renders a stack, finds the live objects that match, and records them in the status (the
// rehearsal). It deletes them when a user approves exactly these objects.
package bysource
