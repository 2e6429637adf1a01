package stacks_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// Secret values are redacted in all messages of renderers: verbatim, quoted, in base64, and with
// folded whitespace.
func TestSecretValuesAreRedacted(t *testing.T) {
	secret := "hunter2 \"quoted\"\n  and more"
	encodings := []string{"hunter2", base64.StdEncoding.EncodeToString([]byte(secret)), "and more"}
	for name, template := range map[string]string{
		"fail":      `{{ fail .Values.token }}`,
		"quoted":    `{{ fail (.Values.token | quote) }}`,
		"base64":    `{{ fail (.Values.token | b64enc) }}`,
		"tpl":       `{{ tpl (printf "{{ %s" .Values.token) . }}`,
		"required":  `{{ required .Values.token nil }}`,
		"function":  `{{ .Values.token | atoi | randAlphaNum 5 }}`,
		"not a map": `{{ index .Values.token "x" }}`,
		"bad YAML":  `"{{ .Values.token }}`,
		"a warning": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: {{ .Values.token | quote }}, annotations: {helm.sh/hook: post-delete}}\n",
		"wrong kind": "apiVersion: v1\nkind: {{ .Values.token | quote }}\n",
	} {
		t.Run(name, func(t *testing.T) {
			req := stacks.Request{
				Stack: "demo", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
				Root: writeTree(t, map[string]string{
					"stack.yaml":        components("- {name: shop, helm: {chart: chart}}"),
					"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
					"chart/values.yaml": "token: ''\n", "chart/templates/x.yaml": template,
				}),
				Choices: stacks.Choices{Values: []stacks.ValuesInput{{
					Component: "shop", Source: "Secret site, key values.yaml",
					Data: []byte("token: |-\n  hunter2 \"quoted\"\n    and more\n"),
				}}},
			}
			result, err := stacks.Render(t.Context(), req)
			text := strings.Join(result.Warnings, "\n")
			if err != nil {
				text += err.Error()
				if one, ok := errors.AsType[*stacks.Error](err); ok && one.Err != nil {
					text += one.Err.Error()
				}
			}
			if text == "" {
				t.Fatal("there is neither an error nor a warning")
			}
			for _, form := range encodings {
				if strings.Contains(text, form) {
					t.Errorf("the message contains a secret value: %s", text)
				}
			}
			// Public values are not redacted.
			if name == "fail" {
				req.Choices.Values[0].Public = true
				if _, err := stacks.Render(t.Context(), req); err == nil || !strings.Contains(err.Error(), "hunter2") {
					t.Errorf("public: %v", err)
				}
			}
		})
	}
}
