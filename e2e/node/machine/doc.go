// Package machine makes a node of the machine that it runs on: containerd, runc, kubelet
// and kube-proxy, with a bridge that its pods are on. It needs root on Linux, and what
// [Lacking] names.
package machine
