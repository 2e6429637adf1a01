// Package git reads single commits of Git repositories over HTTPS, HTTP or SSH, and pushes
// commits to branches. It needs neither a git program nor a work tree.
//
//	List      lists the branches and tags of a repository
//	Head      returns the commit of a branch
//	Tag       returns a tag, and HighestTag the one with the highest version in a range
//	Fetch     downloads one commit, without history if the server supports that
//	FS        returns its files
//	Branch    returns a branch to commit to, and Push pushes a commit to it, never by force
//
// The package treats the server as hostile: it bounds what the server sends while it reads
// it ([Limits]), scans a pack before it inflates any object in full, and stores objects in
// files, not in memory. While a pack is resolved, the memory holds one object and its delta
// base, each bounded by Limits.Tree.FileBytes, a cache of at most 96 MiB, and about 200 bytes
// per object.
//
// The package uses version 0 of the protocol, which every server supports, and reads
// repositories with SHA-1 objects.
package git
