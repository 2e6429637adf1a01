// Package engine reconciles the objects of an Owner on a Target cluster: it plans, applies, prunes
// and tears down. It does not depend on the kind of the owner.
//
//	Observe   desired objects, inventory and live index → Snapshot
//	Plan      Snapshot → the actions that are possible now (pure functions)
//	Execute   actions → requests to the API server, and inventory entries that record them
//
// The engine never blocks until objects become ready or are gone: a pass executes the actions that
// are possible now and returns a Report of what is left. The live index notifies the owner when a
// condition for the next actions becomes true.
package engine
