// Package plan decides which actions are possible now to bring the objects of an owner to their
// desired state, or to remove them. Its functions are pure: they read a Snapshot, and nothing else.
// The engine takes the snapshot and executes the Plan.
//
// The package also has what a plan consists of: owners, policies, the inventory, and the errors
// with which an object is refused.
package plan
