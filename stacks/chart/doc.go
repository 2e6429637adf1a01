// Package chart fetches Helm charts from chart repositories. It resolves one exact version to the
// digest of its archive, verifies the signature if spec.charts requires one, and keeps the unpacked
// archive in a cache. Installs share the cache, and it survives a restart.
//
//	Fetch     stacks.ChartRef + Access → stacks.FetchedChart, leased
//	FetchAll  fetches the charts that a stacks.Request needs whatever its values are, and adds
//	          them to it
//	Render    fetches all charts that a stacks.Request needs, and renders with them
//
// Repositories are not trusted: the size of indexes, manifests and archives is limited, an archive
// is unpacked only after its digest matched, and credentials are sent only to the host of the
// repository. Archives have the limits of package artifact, which downloads, unpacks and caches
// them.
//
// A resolved version is remembered for the credentials and keys that it was resolved with, and for
// no others: a caller without access to a repository gets none of its charts from the cache. A
// remembered version costs no request.
package chart
