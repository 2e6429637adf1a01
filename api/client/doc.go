// Package client has no code of its own: below it are the clients of our kinds
// that "make generate" makes, as programs know them from Kubernetes:
//
//   - clientset/versioned: a typed client, and in its folder fake one for tests:
//     NewSimpleClientset (NewClientset can't hold kinds of a CRD; k8s.io/client-go's own limit)
//   - informers/externalversions and listers: watched kinds, read from memory
//   - applyconfiguration: what to send with server-side apply, no field more than wanted
//
// Programs that use controller-runtime need none of them, only the types in
// api/apps/v1.
package client
