// Package remove reconciles KsctlRemove: it says what a removal would do before the
// first delete, and how far it came. What an install owns is deleted by the install's
// own controller, the one writer of its inventory; what something else installed is
// found by its stack and deleted here.
package remove
