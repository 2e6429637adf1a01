// Package oci reads artifacts from OCI registries: file trees that were pushed as one
// gzip-compressed tarball, for example by "flux push artifact", ORAS or image builders.
//
//	Client.Repository  opens a repository
//	Resolve            resolves a tag, a version range or a digest to a digest
//	Fetch              downloads the layer of an artifact and unpacks it
//	Manifest, ManifestByTag, Blob, Referrers   read signatures
//
// The package treats the registry as hostile: it bounds responses while it reads them,
// parses a manifest or unpacks a layer only after it checks the digest, sends
// credentials only to the registry and its token service, never unencrypted unless that
// is allowed, and follows no redirect to a link-local address.
package oci
