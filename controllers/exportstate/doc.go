// Package exportstate reconciles ExportStates: what ksctl's store has of clusters goes
// encrypted to a Secret or to a branch of a Git repository, in the form that an ImportState
// takes.
//
// Encrypting the same state twice makes two files. So what was written is known by keyed
// hashes of both, the state and the file: nothing is written while the store says the same and
// the file is as it was left.
package exportstate
