// Package client is the gRPC client of cluster agents. It supports ksctl's own agent, which
// imports exports into ksctl's state store and scales workers, and the agent of this repository,
// which also lists workers and operations (service Workers).
//
// An agent is untrusted, because its address comes from a user. The client never dials link-local
// or multicast addresses, uses no proxy, and limits the size of responses. Error messages of an
// agent are reduced to one line, and the bearer token is removed from them. The client never
// retries: callers do. Errors are [*SecretError], [*AddressError], [ErrNoWorkers] and [*Error],
// unless a request is too large to be sent.
package client
