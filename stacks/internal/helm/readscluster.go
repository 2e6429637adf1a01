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
)

// ReadsCluster reports whether a render with these values may depend on the kinds or objects of the
// cluster. It looks for the names in the templates, and in the values, which tpl makes templates.
// It is true for a name in a comment, too: a wrong true only costs a wait.
func (c *Chart) ReadsCluster(values map[string]any) bool {
	given, err := json.Marshal(values)
	return err != nil || mentionsCluster(given) || c.readsCluster()
}

func chartMentionsCluster(ch *chart.Chart) bool {
	for _, t := range ch.Templates {
		if mentionsCluster(t.Data) {
			return true
		}
	}
	if values, err := json.Marshal(ch.Values); err != nil || mentionsCluster(values) {
		return true
	}
	for _, sub := range ch.Dependencies() {
		if chartMentionsCluster(sub) {
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
