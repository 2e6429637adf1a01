// Package bysource removes what the ksctl command line, kubectl or Helm installed:
// a stack is rendered to know what to look for, what is found is frozen in the
// status, and it is deleted once a person approved exactly that.
package bysource
