// Package chart fetches charts from repositories: it finds the digest of one exact
// version, verifies what can be verified, and keeps the unpacked archive in a cache
// that installs share and that survives a restart.
//
//	Fetch     stacks.ChartRef + Access → stacks.FetchedChart, leased
//	FetchAll  everything that a stacks.Request needs, put into it
//
// A repository is not trusted: its index, its manifests and its archives are bounded,
// nothing is unpacked before its digest was found right, and credentials go to the
// host of the repository alone. An archive has the limits of package artifact, which
// does the download, the unpacking and the cache.
//
// What was resolved once is remembered, for the same credentials and the same keys
// only: who may not ask a repository gets nothing of it from the cache either. A
// version that is remembered costs no request.
package chart
