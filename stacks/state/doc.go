// Package state reads and writes the state documents of ksctl: the document of one cluster, the
// credentials of one cloud, or an export of several clusters and credentials.
//
// The documents have no version field. The release that wrote one is detected by its keys
// ([Dialect]). A document is stored and exported as the bytes that were read, without white space,
// so that keys that this package does not know are kept.
//
// Most of a document is secret. Formatting a document prints only the key of its cluster, and
// errors contain JSON pointers, never values.
package state
