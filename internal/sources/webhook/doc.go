// Package webhook receives push notifications of Git servers and others, and requests a reconcile
// of the KsctlSource that they affect. Each source has its own path, which is derived from its
// token. A notification only means that there may be something new: the spec alone determines what
// is fetched and from where.
//
// A notification sets the annotation reconcile.fluxcd.io/requestedAt, as Flux's Receiver does, so
// any replica may receive it. The response "accepted" means that the API server has stored the
// annotation. A coalesced notification is kept in memory until then: if the process ends first, the
// source is reconciled at its interval.
package webhook
