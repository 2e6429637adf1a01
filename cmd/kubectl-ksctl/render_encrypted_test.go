package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

// A stack with an encrypted file renders with the key. Without the key, render reports an error and
// validate a warning.
func TestRenderEncryptedStack(t *testing.T) {
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := codec.Encrypt(t.Context(), sops.EncryptRequest{
		Data:   []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: hunter2}\n"),
		Format: sops.YAML, Recipients: []string{id.Recipient().String()}, EncryptedRegex: "^stringData$",
	})
	if err != nil {
		t.Fatal(err)
	}
	root, keys := t.TempDir(), filepath.Join(t.TempDir(), "age.agekey")
	for file, content := range map[string]string{
		filepath.Join(root, "stack.yaml"): "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\n" +
			"spec: {version: 1.0.0, components: [{name: app, manifests: [a.yaml]}]}\n",
		filepath.Join(root, "a.yaml"): string(sealed), keys: id.String(),
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	render := []string{"render", "--root", root, "--stack", "demo"}
	if got, want := run(t, render...),
		"error: component \"app\": file a.yaml: the file is encrypted; set --age-key-file to a file with the private "+
			"key\nexit 1\n"; got != want {
		t.Errorf("got %s", got)
	}
	if got := run(t, append(render, "--age-key-file", keys)...); !strings.Contains(got, "password: hunter2") ||
		strings.Contains(got, "sops") {
		t.Errorf("got %s", got)
	}
	if got := run(t, "validate", root); !strings.HasPrefix(got, "stack demo 1.0.0\nwarning: stack.yaml: component "+
		"\"app\": file a.yaml: it is encrypted with SOPS, so the rendered objects are not checked") ||
		!strings.HasSuffix(got, ": ok\n") {
		t.Errorf("got %s", got)
	}
}
