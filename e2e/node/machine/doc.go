// Package machine turns this machine into a Kubernetes node: it runs containerd, runc, kubelet and
// kube-proxy, with a bridge network for pods. It needs Linux, root, and the programs and
// permissions that [MissingRequirement] checks.
package machine
