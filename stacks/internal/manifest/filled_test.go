package manifest

import (
	"encoding/base64"
	"encoding/json"
	"testing"
)

const certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

func TestFieldsThatOthersFillAreNotSent(t *testing.T) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	webhook := func(bundle string) string {
		return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: x}
webhooks: [{name: a.b.c, clientConfig: {service: {name: s}` + bundle + `}}]
`
	}
	crd := func(bundle string) string {
		return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: x}
spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {` + bundle + `}}}}
`
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty bundle": {webhook(`, caBundle: ""`), webhook("")},
		"null bundle":  {webhook(`, caBundle: null`), webhook("")},
		"newline":      {webhook(`, caBundle: Cg==`), webhook("")},
		"placeholder":  {webhook(`, caBundle: ` + encode("a placeholder")), webhook("")},
		"certificate": {webhook(`, caBundle: ` + encode(certificate)),
			webhook(`, caBundle: ` + encode(certificate))},
		"not base64": {webhook(`, caBundle: "%"`), webhook(`, caBundle: "%"`)},
		"no client config": {"apiVersion: admissionregistration.k8s.io/v1\n" +
			"kind: MutatingWebhookConfiguration\nmetadata: {name: x}\nwebhooks: [x, {}]\n", ""},
		"conversion": {crd(`caBundle: ""`), crd("")},
		"without conversion": {"apiVersion: apiextensions.k8s.io/v1\n" +
			"kind: CustomResourceDefinition\nmetadata: {name: x}\nspec: {}\n", ""},
		"APIService": {"apiVersion: apiregistration.k8s.io/v1\nkind: APIService\n" +
			"metadata: {name: x}\nspec: {caBundle: \"\"}\n",
			"apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: x}\nspec: {}\n"},
		"aggregated role": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n" +
			"metadata: {name: x}\naggregationRule: {}\nrules: []\n",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\naggregationRule: {}\n"},
		// Other empty fields are ours: they are put right when somebody fills them.
		"role": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\nrules: []\n", ""},
		"cluster role": {"apiVersion: rbac.authorization.k8s.io/v1\n" +
			"kind: ClusterRole\nmetadata: {name: x}\nrules: []\n", ""},
		"NetworkPolicy": {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n" +
			"metadata: {name: x}\nspec: {ingress: []}\n", ""},
		"ConfigMap": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {caBundle: \"\"}\n", ""},
	} {
		want := c.want
		if want == "" {
			want = c.text
		}
		if got := normalized(t, c.text); got != normalized(t, want) || got != canonical(t, want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func parseOne(t *testing.T, text string) *Object {
	t.Helper()
	objects, err := Parse("x.yaml", []byte(text))
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	return objects[0]
}

func normalized(t *testing.T, text string) string {
	t.Helper()
	o := parseOne(t, text)
	Normalize(o)
	raw, err := json.Marshal(o.Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(parseOne(t, text).Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
