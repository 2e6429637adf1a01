// Package ksctl is a provisioner that runs ksctl's command line. It supports clusters with state in
// local files (store-local). It lists workers from that state, which is the only record of them.
package ksctl
