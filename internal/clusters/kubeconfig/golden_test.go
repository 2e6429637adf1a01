package kubeconfig_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
	"github.com/ksctl/gitops/internal/golden"
)

// fixedKeyPair returns a fixed CA, certificate and key, as base64 of PEM.
func fixedKeyPair(t *testing.T) (ca, cert, key string) {
	t.Helper()
	read := func(name string) string {
		data, err := os.ReadFile("../../scaling/pki/testdata/golden/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(data)
	}
	return read("authority-ca.crt"), read("client-tls.crt"), read("client-tls.key")
}

// Flux and Argo CD read these Secrets. If the bytes changed, every Secret would be rewritten, and
// Cluster Autoscaler would restart.
func TestGoldenAccess(t *testing.T) {
	ca, cert, key := fixedKeyPair(t)
	for name, c := range map[string]struct{ cluster, user string }{
		"token": {server, token},
		"password": {server + ", tls-server-name: kubernetes, proxy-url: 'http://proxy.example.com:3128'",
			"username: admin, password: " + secret},
		"certificate": {server + ", certificate-authority-data: " + ca,
			"client-certificate-data: " + cert + ", client-key-data: " + key},
		"insecure": {server + ", insecure-skip-tls-verify: true", token},
	} {
		a, err := kubeconfig.Read([]byte(kubeconfigWith(c.cluster, c.user)),
			kubeconfig.Options{AllowInsecure: name == "insecure"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		small, err := a.YAML()
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, name+".yaml", small)
		argo, err := a.ArgoCDSecretData("prod")
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for _, field := range slices.Sorted(maps.Keys(argo)) {
			_, _ = fmt.Fprintf(&lines, "%s: %s\n", field, argo[field])
		}
		golden.Equal(t, name+"-argocd.txt", []byte(lines.String()))

		back, err := kubeconfig.Read(golden.Read(t, name+".yaml"),
			kubeconfig.Options{AllowInsecure: name == "insecure"})
		if err != nil || back.Server != a.Server || back.Context != a.Context || !back.Expires.Equal(a.Expires) {
			t.Errorf("%s is read as %v, %v", name, back, err)
		}
	}
}

// Argo CD finds its Secret by this label, and Flux finds a kubeconfig by these keys.
func TestGoldenNames(t *testing.T) {
	key, _ := kubeconfig.FromSecret(nil, "")
	second, _ := kubeconfig.FromSecret(map[string][]byte{"value.yaml": []byte("x")}, "")
	golden.Equal(t, "names.txt", fmt.Appendf(nil, "label: %s=%s\nkeys: %s %s\n", kubeconfig.ArgoCDLabel,
		kubeconfig.ArgoCDLabelValue, key, second))
}
