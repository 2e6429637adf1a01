package manifest

import (
	"encoding/base64"
	"encoding/pem"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// dropFilled removes fields that the control plane, or an injector of certificates, fills. To own
// them empty would only be a contest. The API server treats an absent field as it does an empty
// one.
func dropFilled(o *Object) {
	switch {
	case o.Group == "admissionregistration.k8s.io" &&
		(o.Kind == "MutatingWebhookConfiguration" || o.Kind == "ValidatingWebhookConfiguration"):
		webhooks, _ := o.Value["webhooks"].([]any)
		for _, w := range webhooks {
			if webhook, ok := w.(map[string]any); ok {
				dropEmptyBundle(webhook, "clientConfig")
			}
		}
	case isDefinition(o):
		dropEmptyBundle(o.Value, "spec", "conversion", "webhook", "clientConfig")
	case o.Group == "apiregistration.k8s.io" && o.Kind == "APIService":
		dropEmptyBundle(o.Value, "spec")
	case o.Group == "rbac.authorization.k8s.io" && o.Kind == "ClusterRole" && o.Value["aggregationRule"] != nil:
		delete(o.Value, "rules") // the control plane writes those of the selected roles
	}
}

// dropEmptyBundle removes caBundle from the fields at a path if it has no certificate. What is not
// base64 stays: the API server reports it.
func dropEmptyBundle(value map[string]any, path ...string) {
	found, _, err := unstructured.NestedFieldNoCopy(value, path...)
	fields, ok := found.(map[string]any)
	if err != nil || !ok {
		return
	}
	text, isText := fields["caBundle"].(string)
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && (isText || fields["caBundle"] == nil) &&
		!hasCertificate(raw) {
		delete(fields, "caBundle")
	}
}

func hasCertificate(raw []byte) bool {
	for {
		block, rest := pem.Decode(raw)
		if block == nil {
			return false
		}
		if block.Type == "CERTIFICATE" {
			return true
		}
		raw = rest
	}
}
