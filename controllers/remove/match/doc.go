// Package match decides whether a live object was installed from a stack with the ksctl CLI,
// kubectl or Helm, and belongs to no other owner. It is pure: its input is the rendered and the
// live object.
package match
