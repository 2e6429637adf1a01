package helm

import (
	"bytes"
	"encoding/json"
	"regexp"

	chart "helm.sh/helm/v4/pkg/chart/v2"
)

var (
	lookupCall = regexp.MustCompile(`\blookup\b`)
	// capabilities matches .Capabilities with the field that is read of it.
	capabilities = regexp.MustCompile(`\bCapabilities\b(\.[A-Za-z]+)?`)
	releaseState = regexp.MustCompile(`\b(?:IsInstall|IsUpgrade|Revision)\b`)
	releaseHook  = regexp.MustCompile(`(?i)\b(?:pre|post)-(?:install|upgrade)\b`)
)

// ReadsCluster reports whether a render with these values may depend on the kinds or objects of the
// cluster. It looks for the names in the templates, and in the values, which tpl makes templates.
// It is true for a name in a comment, too: a wrong true only costs a wait.
func (c *Chart) ReadsCluster(values map[string]any) bool {
	given, err := json.Marshal(values)
	return err != nil || mentionsCluster(given) || c.readsCluster()
}

// ReadsRelease reports in the same way whether a render with these values may depend on the
// revision of the release.
func (c *Chart) ReadsRelease(values map[string]any) bool {
	given, err := json.Marshal(values)
	return err != nil || releaseState.Match(given) || c.readsRelease()
}

// HasHooks reports in the same way whether the chart may have hooks of installs or upgrades.
func (c *Chart) HasHooks(values map[string]any) bool {
	given, err := json.Marshal(values)
	return err != nil || releaseHook.Match(given) || c.hasHooks()
}

// chartMentions reports whether a template or a default value of a chart mentions something.
func chartMentions(ch *chart.Chart, mentions func([]byte) bool) bool {
	for _, t := range ch.Templates {
		if mentions(t.Data) {
			return true
		}
	}
	if values, err := json.Marshal(ch.Values); err != nil || mentions(values) {
		return true
	}
	for _, sub := range ch.Dependencies() {
		if chartMentions(sub, mentions) {
			return true
		}
	}
	return false
}

func mentionsCluster(text []byte) bool {
	// Search for the plain words first: that is much faster than the patterns.
	if bytes.Contains(text, []byte("lookup")) && lookupCall.Match(text) {
		return true
	}
	if !bytes.Contains(text, []byte("Capabilities")) {
		return false
	}
	for _, m := range capabilities.FindAllSubmatch(text, -1) {
		if field := string(m[1]); field != ".KubeVersion" && field != ".HelmVersion" {
			return true
		}
	}
	return false
}
