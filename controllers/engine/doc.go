// Package engine makes a cluster equal to what an owner wants: it plans, applies,
// waits, prunes and tears down, and knows nothing of the kind that owns.
//
//	Observe   desired objects, inventory and live index → Input
//	Plan      Input → the next possible actions (pure)
//	Act       actions → requests, and the inventory that records them
//
// Nothing here waits: a pass takes the next possible step and returns what it
// waits for. The live index wakes the owner when that came true.
package engine
