package stacks_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
)

// Parameters of an install are decrypted in all forms of a reference. They are secret afterwards,
// also those of a ConfigMap; what is not encrypted beside them is not.
func TestEncryptedParametersAreDecryptedAndSecret(t *testing.T) {
	k := newKeyPair(t)
	document := []byte(k.encrypt(sops.YAML, "", "password: hunter2-yaml\n"))
	limits := []byte(k.encrypt(sops.JSON, "", `{"cpu": "hunter2-json"}`))
	stack := func(target, path string) string {
		return stackHeader + "  parameters:\n    schema:\n      properties:\n        password: {type: string}\n" +
			"        zone: {type: string, default: none}\n" +
			"        limits: {type: object, properties: {cpu: {type: string}}}\n" +
			"  components:\n  - name: web\n    manifests: [web.yaml]\n    fields:\n" +
			"    - {create: true, target: {kind: " + target + "}, path: " + path + ", value: stack.password, " +
			"when: has(stack.password)}\n" +
			"    - {create: true, target: {kind: " + target + "}, path: stringData.cpu, value: stack.limits.cpu, " +
			"when: has(stack.limits)}\n" +
			"    - {target: {kind: ConfigMap}, path: data.zone, value: stack.zone, create: true}\n"
	}
	const objects = "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
	for name, tc := range map[string]struct {
		from stacks.ParametersInput
		want string
	}{
		"document": {stacks.ParametersInput{Source: "ConfigMap c", Key: "p",
			Data: map[string][]byte{"p": document}}, "hunter2-yaml"},
		"document of a Secret": {stacks.ParametersInput{Source: "Secret c", Key: "p", Secret: true,
			Data: map[string][]byte{"p": document}}, "hunter2-yaml"},
		"targetPath": {stacks.ParametersInput{Source: "ConfigMap c", Key: "p", TargetPath: "limits",
			Data: map[string][]byte{"p": limits}}, "hunter2-json"},
		"each key": {stacks.ParametersInput{Source: "ConfigMap c",
			Data: map[string][]byte{"limits": limits, "zone": []byte("eu")}}, "hunter2-json"},
	} {
		t.Run(name, func(t *testing.T) {
			req := encryptedRequest(t, map[string]string{"stack.yaml": stack("Secret", "stringData.password"),
				"web.yaml": objects})
			req.Choices.ParametersFrom = []stacks.ParametersInput{tc.from}
			_, err := stacks.Render(t.Context(), req)
			if err == nil || !strings.Contains(err.Error(), tc.from.Source+", key ") ||
				!strings.Contains(err.Error(), "encrypted with SOPS, but no decryption keys are given") {
				t.Errorf("without keys: %v", err)
			}
			result, err := stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render)
			if err != nil {
				t.Fatal(err)
			}
			if text := findManifestByPrefix(t, result, "Secret", "web"); !strings.Contains(text, tc.want) {
				t.Error(text)
			}
			zone := map[bool]string{true: `"zone":"eu"`, false: `"zone":"none"`}[tc.from.Data["zone"] != nil]
			if text := findManifestByPrefix(t, result, "ConfigMap", "web"); !strings.Contains(text, zone) {
				t.Error(text)
			}
			if len(result.Decrypted) != 1 || !strings.HasPrefix(result.Decrypted[0], tc.from.Source+", key ") {
				t.Errorf("decrypted: %q", result.Decrypted)
			}
			writeFile(t, filepath.Join(req.Root, "stack.yaml"), stack("ConfigMap", "data.password"))
			_, err = stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render)
			if err == nil || !strings.Contains(err.Error(), "is from a Secret") ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("in a ConfigMap: %v", err)
			}
		})
	}
}
