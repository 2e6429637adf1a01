// Package oci reads artifacts of OCI registries: trees of files that were pushed
// as one gzip-compressed tarball, as "flux push artifact", ORAS and image
// builders make them.
//
//	Client.Repository  a repository, and how to reach it
//	Resolve            from a tag, a range of versions or a digest to a digest
//	Fetch              gets that artifact's layer and unpacks it
//	Manifest, Blob, Referrers, Tagged   what signatures are read with
//
// The registry is taken as hostile: answers are bounded while they come in, a
// manifest is parsed and a layer unpacked only after its digest was found right,
// credentials go nowhere but to the registry and its token service, never in the
// clear unless that is allowed, and no redirect leads to a link-local address.
package oci
