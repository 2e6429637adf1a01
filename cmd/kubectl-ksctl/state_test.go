package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/state"
)

const stateTestdata = "../../stacks/state/testdata"

// keyPair returns a file with a private age key, and the public key.
func keyPair(t *testing.T) (file, public string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "age.agekey")
	if err := os.WriteFile(file, []byte("# a comment\n"+id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, id.Recipient().String()
}

func TestStateInspect(t *testing.T) {
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	names, err := filepath.Glob(stateTestdata + "/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	got := run(t, append([]string{"state", "inspect"}, names...)...)
	golden(t, "state-inspect.txt", got)
	if strings.Contains(got, "FAKE") {
		t.Error("a secret is shown")
	}
	if got := run(t, "state", "inspect", "testdata/nowhere.json"); !strings.HasPrefix(got,
		"error: open testdata/nowhere.json") {
		t.Error(got)
	}
}

func TestStateValidate(t *testing.T) {
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	if got := run(t, "state", "validate", stateTestdata+"/v2_aws_managed.json"); got != "1 file, 1 cluster: ok\n" {
		t.Error(got)
	}
	if got := run(t, "state", "validate", "--allow-plaintext",
		stateTestdata+"/v1_azure_ha_k3s.json"); got != "1 file, 1 cluster: ok\n" {
		t.Error(got)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.json")
	if err := os.WriteFile(wrong,
		[]byte(`{"cluster_name":"demo","cluster_type":"ha","region":"r","cloud_provider":"azur"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, "state", "validate", stateTestdata+"/v1_2_0_aws_managed.json", wrong)
	for _, want := range []string{"/cluster_kubeconfig: the secret is in plaintext", `did you mean "azure"?`,
		"exit 1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// What an import rejects is reported before the commit.
func TestStateValidateRejectsWhatImportRejects(t *testing.T) {
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	doc := func(cloud, kind, version string) string {
		return fmt.Sprintf(
			`{"cluster_name":"demo","region":"LOCAL","cluster_type":%q,"cloud_provider":%q,"cloud_infrastructure_state":{%q:{}},"versions":{"kubernetes":%q}}`, kind, cloud, cloud, version)
	}
	credentials := func(id string) string {
		return fmt.Sprintf(`{"cloud_provider":"aws","aws":{"access_key_id":%q,"secret_access_key":"x"}}`, id)
	}
	for name, tc := range map[string]struct{ content, want string }{
		"two states of one cluster": {`{"Clusters":[` + doc("local", "managed", "1.30.0") + "," +
			doc("local", "managed", "1.31.0") + `]}`,
			"states.json: local.managed.demo.LOCAL: the file has different states: remove all but one"},
		"one state twice": {`{"Clusters":[` + doc("local", "managed", "1.30.0") + "," +
			doc("local", "managed", "1.30.0") + `]}`, "1 file, 2 clusters: ok"},
		"a local ha cluster": {doc("local", "ha", "1.30.0"),
			`/cluster_type: the value is "ha"; the cloud local has only managed clusters`},
		"a MongoDB's export": {`{"ID":"65f0c0ffee65f0c0ffee65f0",` + doc("local", "managed", "1.30.0")[1:],
			"exported from a MongoDB"},
		"two credentials of one cloud": {`{"Credentials":[` + credentials("a") + "," + credentials("b") + `]}`,
			"states.json: credentials of aws: the file has different credentials: remove all but one"},
		"an empty state": {`{"cluster_name":""}`, "states.json: a cluster without name, cloud, type and region: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("states.json", []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := run(t, "state", "validate", "--allow-plaintext", "states.json"); !strings.Contains(got, tc.want) {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestStateEncryptRoundTrip(t *testing.T) {
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	keys, public := keyPair(t)
	names, err := filepath.Glob(stateTestdata + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		dir := t.TempDir()
		sealed, back := filepath.Join(dir, "sealed.json"), filepath.Join(dir, "back.json")
		if got := run(t, "state", "encrypt", name, "--age", public, "-o", sealed); got != "" {
			t.Fatalf("%s: %s", name, got)
		}
		data, err := os.ReadFile(sealed)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"FAKE-kubeconfig", "FAKE-private-key", "FAKE-civo-token", "AKIAFAKE",
			"FAKE-SECRET", "K10fake", "PRIVATE KEY"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s: %s is not encrypted:\n%s", name, secret, data)
			}
		}
		plain := strings.Split(run(t, "state", "inspect", name), "\nplaintext: ")[0]
		if got := run(t, "state", "inspect", sealed); !strings.Contains(got, ", encrypted\n") ||
			afterFirstLine(got) != afterFirstLine(plain+"\n") {
			t.Errorf("%s: the encrypted file shows\n%s\nand the plaintext file\n%s", name, got, plain)
		}
		got := run(t, "state", "validate", sealed, "--age-key-file", keys)
		fromMongoDB := strings.Contains(got, ": exported from a MongoDB")
		if fromMongoDB != (filepath.Base(name) == "v2_0_azure_selfmanaged.json") ||
			!fromMongoDB && !strings.HasSuffix(got, ": ok\n") {
			t.Errorf("%s: %s", name, got)
		}
		if got := run(t, "state", "decrypt", sealed, "--age-key-file", keys, "-o", back); got != "" {
			t.Fatalf("%s: %s", name, got)
		}
		original, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		decrypted, err := os.ReadFile(back)
		if err != nil || !state.Equal(original, decrypted) {
			t.Errorf("%s: the decrypted file differs:\n%s", name, decrypted)
		}
		if info, err := os.Stat(back); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode is %v, want 0600: %v", back, info.Mode(), err)
		}
	}
}

// afterFirstLine returns the text after the first line.
func afterFirstLine(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(rest)
}

// A field that a later release of ksctl adds is encrypted, because it may be a secret.
func TestStateEncryptUnknownFields(t *testing.T) {
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	_, public := keyPair(t)
	name := filepath.Join(t.TempDir(), "state.json")
	doc := `{"cluster_name":"demo","cluster_type":"ha","region":"r","cloud_provider":"aws","vault":{"name":"tomorrow","unseal":["hunter2"]},"addons":{"apps":[{"name":"argocd","version":"v2"}]}}`
	if err := os.WriteFile(name, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, "state", "encrypt", name, "--age", public)
	if strings.Contains(got, "hunter2") || strings.Contains(got, "tomorrow") || !strings.Contains(got, `"demo"`) {
		t.Error(got)
	}
	if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "state", "inspect", name); !strings.Contains(got, "aws.ha.demo.r") ||
		!strings.Contains(got, "(encrypted) v2") {
		t.Error(got)
	}
}

func TestStateEncryptInPlaceAndErrors(t *testing.T) {
	keys, public := keyPair(t)
	t.Setenv("SOPS_AGE_KEY_FILE", keys)
	name := filepath.Join(t.TempDir(), "state.json")
	// A secret in a field that normally stays readable is encrypted, too.
	doc := `{"cluster_name":"demo","cluster_type":"ha","region":"-----BEGIN RSA PRIVATE KEY-----","cloud_provider":"aws"}`
	if err := os.WriteFile(name, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "state", "encrypt", name, "--age", public, "--in-place"); got != "" {
		t.Fatal(got)
	}
	if got := run(t, "state", "encrypt", name, "--age", public, "--in-place"); !strings.Contains(got,
		"already encrypted") {
		t.Error(got)
	}
	if got := run(t, "state", "inspect", name); !strings.Contains(got, "aws.ha.demo.") {
		t.Error(got)
	}
	t.Setenv("SOPS_AGE_KEY_FILE", "")
	lost := filepath.Join(t.TempDir(), "lost.json")
	if err := os.WriteFile(lost,
		[]byte(`{"cluster_name":"demo","cluster_type":"ha","region":"r","cloud_provider":"aws","cluster_kubeconfig":"ENC[AES256_GCM,data:x]"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "state", "validate", lost); !strings.Contains(got,
		"/cluster_kubeconfig: the value is encrypted, but the SOPS metadata is missing") ||
		!strings.HasSuffix(got, "exit 1\n") {
		t.Error(got)
	}
	for args, want := range map[string]string{
		"inspect":                      "encrypted, including the names",
		"validate":                     "--age-key-file",
		"decrypt":                      "--age-key-file",
		"decrypt --age-key-file /none": "--age-key-file: open /none",
	} {
		words := strings.Fields(args)
		if got := run(t, append([]string{"state", words[0], name}, words[1:]...)...); !strings.Contains(got, want) {
			t.Errorf("%s: %s", args, got)
		}
	}
	if got := run(t, "state", "encrypt", "main.go", "--age", public); !strings.Contains(got,
		"error: main.go: line 1: not JSON") {
		t.Error(got)
	}
	if got := run(t, "state", "encrypt", stateTestdata+"/v2_aws_managed.json", "--age",
		"age1nobody"); !strings.Contains(got, "age1nobody") {
		t.Error(got)
	}
}
