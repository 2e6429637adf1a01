// Package restapi serves a REST endpoint over TLS with which applications read, create, change and
// delete KsctlInstalls and objects of published kinds:
//
//	GET, PUT, PATCH, DELETE /v1/{plural}.{group}/{namespace}/{name}
//
// Each request to the API server that a request of a caller causes bears the token of that caller,
// so that permissions, admission and audit are those of the caller. The token is neither stored nor
// logged, and no permission of the controller is used for it.
//
// Without a Repository, a change is sent to the API server. With one, it is committed to the
// repository, after the API server has accepted it in a dry run.
//
// Errors are answered as a Status of Kubernetes. An answer of the API server is passed on as it is.
package restapi
