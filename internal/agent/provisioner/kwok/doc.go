// Package kwok is a provisioner for demonstrations and tests. Its machines are fake Node objects
// that kwok (https://kwok.sigs.k8s.io) simulates. It can inject the faults of a cloud provider: see
// [Config].
package kwok
