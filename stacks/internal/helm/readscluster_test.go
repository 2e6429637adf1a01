package helm

import "testing"

func TestMentionsCluster(t *testing.T) {
	for text, want := range map[string]bool{
		`{{ if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}`:      true,
		`{{ if has "x/v1" .Capabilities.APIVersions }}`:                          true,
		`{{ $caps := .Capabilities }}{{ $caps.APIVersions.Has "x" }}`:            true,
		`{{ index .Capabilities "APIVersions" }}`:                                true,
		`{{ (lookup "v1" "Secret" "ns" "x").data }}`:                             true,
		`{{ semverCompare ">=1.21-0" .Capabilities.KubeVersion.GitVersion }}`:    false,
		`{{ $.Capabilities.KubeVersion.Major }} {{ .Capabilities.HelmVersion }}`: false,
		`{{ .Values.lookupInterval }}`:                                           false,
		`{{ .Values.capabilities.drop }}`:                                        false,
		``:                                                                       false,
	} {
		if got := mentionsCluster([]byte(text)); got != want {
			t.Errorf("%s: got %v", text, got)
		}
	}
}
