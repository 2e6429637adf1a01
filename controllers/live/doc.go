// Package live keeps, for one target cluster, what decisions need to know of
// the objects that are managed there: a projection of each, fed by watches.
//
// The watches select by OwnerLabel and run as the controller itself. A label
// only selects: an object is stored if its mark (MarkAnnotation) names the
// object itself, so that copies that other controllers make are left out.
//
// Each page of a list and each event is projected at once and thrown away.
// Nothing of an object is kept but its Object, packed.
package live
