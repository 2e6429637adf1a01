// Package remove reconciles KsctlRemoves: it reports what a removal would do before the first
// delete, and its progress. Objects of an install are deleted by the controller of the install,
// because only that writes the inventory; package bysource finds and deletes the objects of a stack
// that another tool installed.
package remove
