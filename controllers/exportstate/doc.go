// Package exportstate reconciles ExportStates: it exports the cluster states in the ksctl store,
// encrypted, to a Secret or to a branch of a Git repository, in the format that an ImportState
// reads.
//
// Encrypting the same state twice results in two different files. So the status has keyed hashes of
// both, the state and the file: nothing is written while neither the state in the store nor the
// file has changed.
package exportstate
