// Package ksctl makes machines with ksctl's command line, for clusters whose state ksctl keeps
// in files (store-local). What there is it reads from that state; nothing else knows it.
package ksctl
