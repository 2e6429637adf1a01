// Package crd embeds the generated CustomResourceDefinitions that other code reads.
package crd

import _ "embed"

// KsctlInstalls is the CustomResourceDefinition of KsctlInstall, in YAML.
//
//go:embed bases/apps.ksctl.com_ksctlinstalls.yaml
var KsctlInstalls []byte
