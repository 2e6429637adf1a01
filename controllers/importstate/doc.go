// Package importstate reconciles ImportStates: what ksctl exported of its clusters goes
// from a source into the store in which ksctl keeps its states, and no further.
//
// An entry of the store is written when the source has another one than was written
// last, and nobody else has written there since. What ksctl makes of a state after the
// import is its own: a cluster that it has scaled is not set back.
//
// Or an agent brings it into a store that can't be read from here: then an entry is sent
// when the source has another one than was sent last.
package importstate
