// Package live keeps an in-memory index of the managed objects of one target cluster. List and
// watch requests feed the index. It stores a small projection (Object) of each object.
//
// The requests select objects by OwnerLabel and run with the permissions of the controller. The
// label is only a selector: the index stores an object if its mark (MarkAnnotation) contains the id
// of that object. This excludes copies that other controllers make with the same metadata.
//
// Each list item and each watch event is projected immediately and then discarded. The index keeps
// the packed Object and nothing else.
package live
