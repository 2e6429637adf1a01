// Package client speaks with the agents of clusters over gRPC: with ksctl's own, which
// brings exports into ksctl's store and scales, and with ours, which says besides what
// there is (service Workers).
//
// An agent is a stranger at an address that a user wrote: link-local and multicast
// addresses are never dialled, no proxy is used, answers are bounded, and of its words no
// more is told than one line, without our token in it. Nothing is asked twice here: whoever
// calls decides about that. Errors are [*SecretError], [*AddressError], [*NoWorkersError],
// [*TooLargeError] and [*Error].
package client
