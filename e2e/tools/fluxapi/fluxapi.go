// Package fluxapi pins the Go types of Flux' HelmRelease, whose controller is not among the
// programs of package tools. Tests read their source.
package fluxapi

import _ "github.com/fluxcd/helm-controller/api/v2" // pinned by go.mod
