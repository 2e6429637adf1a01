// Package state reads and writes the documents in which ksctl keeps what it knows
// of a cluster: an export of several, a document alone, or a cloud's credentials.
//
// The documents have no version field. Which release wrote one is told by its keys
// ([Dialect]). Whatever it holds is kept: a document is written back as the bytes that
// were read, without white space, so that a key that is not known here survives.
//
// Most of a document is secret. Nothing here prints more of one than whose it is, and
// errors name JSON pointers, never values.
package state
