// Package argocd embeds the health check of our kinds for Argo CD.
package argocd

import _ "embed"

// Health is a health check in Lua for every kind with the conditions of a KsctlInstall, such as the
// kinds that stacks serve.
//
//go:embed resource_customizations/apps.ksctl.com/KsctlInstall/health.lua
var Health string
