// Package git reads one commit of a Git repository that is served over HTTPS,
// HTTP or SSH, and puts commits on a branch of one, without a git program and without a
// work tree.
//
//	List      asks the server for its branches and tags
//	Head      gives the commit of a branch
//	Tag       gives a tag, and Newest the one with the highest version in a range
//	Fetch     gets that one commit, without history where the server can do so
//	FS        shows its files
//	Branch    gives a branch to commit on, and Push puts a commit there, never by force
//
// The server is taken as hostile: what it sends is bounded while it comes in
// ([Limits]), looked through before anything is inflated in whole, and kept in
// files, not in memory. What remains in memory while a pack is resolved is one
// object and the object it is a delta of, each bounded by Limits.Tree.FileBytes,
// a cache of 96 MiB at most, and some 200 bytes per object.
//
// It speaks version 0 of the protocol, that every server understands, and
// reads repositories of SHA-1 objects.
package git
