// Package importstate reconciles ImportStates: it imports cluster states that ksctl exported from a
// source into the store of ksctl. It does not change the clusters themselves.
//
// It writes an entry of the store if the entry in the source has changed since it was last written,
// and no other client has changed the entry in the store since. Changes that ksctl makes to a state
// after the import are kept: a cluster that ksctl has scaled is not reset.
//
// Instead of writing a store, it can send the states to an agent, whose store it cannot read. Then
// it sends an entry if the entry in the source has changed since it was last sent.
package importstate
