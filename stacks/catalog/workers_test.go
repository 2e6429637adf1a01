package catalog

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// render renders a shipped stack with parameters.
func render(t *testing.T, name string, parameters map[string]any) string {
	t.Helper()
	res, err := stacks.Render(t.Context(), stacks.Request{Root: folder(t, name, "1.0.0"), Stack: name,
		Install: stacks.Identity{Namespace: "team", Name: name}, Choices: stacks.Choices{Parameters: parameters},
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
	if err != nil || len(res.Warnings) > 0 {
		t.Fatal(err, res.Warnings)
	}
	return manifests(res)
}

func expectText(t *testing.T, out string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("%s is not in\n%s", w, out)
		}
	}
}

func TestWorkerAPI(t *testing.T) {
	out := render(t, "worker-api", nil)
	expectText(t, out, `"--files-url=http://worker-api.team.svc:8788"`, `"--namespace=team"`, `"--data-limit=1Gi"`,
		`"--secrets=true"`, `"resources":["secrets"],"verbs":["get","create","update"]`, `"secretName":"worker-api-tokens"`,
		`"subjects":[{"kind":"ServiceAccount","name":"worker-api","namespace":"team"}]`,
		`"image":"ghcr.io/ksctl/gitops/worker-api:0.1.0"`, `"memory":"512Mi"`)
	for _, absent := range []string{"/tls", "storageClassName", "envFrom"} {
		if strings.Contains(out, absent) {
			t.Errorf("%s is in\n%s", absent, out)
		}
	}
	out = render(t, "worker-api", map[string]any{"secrets": false, "tlsSecret": "cert", "s3": "scripts/team",
		"s3Endpoint": "http://s3:9000", "s3Secret": "aws", "storageClassName": "fast", "size": "5Gi",
		"tokensSecret": "mine", "filesURL": "https://files.example.com/$(HOME)", "keep": "48h",
		"image":     "registry.example.com/worker-api:1",
		"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}})
	expectText(t, out, `"--cert-file=/tls/tls.crt"`, `"--key-file=/tls/tls.key"`, `"mountPath":"/tls"`,
		`{"name":"tls","secret":{"secretName":"cert"}}`, `"--s3=scripts/team"`, `"--s3-endpoint=http://s3:9000"`,
		`"envFrom":[{"secretRef":{"name":"aws"}}]`, `"storageClassName":"fast"`, `"storage":"5Gi"`, `"--data-limit=5Gi"`,
		`"secretName":"mine"`, `"--files-url=https://files.example.com/$$(HOME)"`, `"--keep=48h"`, `"--secrets=false"`,
		`"image":"registry.example.com/worker-api:1"`, `"resources":{"limits":{"memory":"1Gi"}}`)
	if strings.Contains(out, `"secrets"]`) {
		t.Errorf("the API can read Secrets:\n%s", out)
	}
}

func TestWorkerRegistry(t *testing.T) {
	out := render(t, "worker-registry", nil)
	expectText(t, out, `"args":["--addr=:5000","--data=/data","--gc-interval=24h"]`, `"scheme":"HTTP"`,
		`"image":"ghcr.io/ksctl/gitops/worker-registry:0.1.0"`, `"storage":"10Gi"`, `"port":5000`)
	for _, absent := range []string{"/tls", "htpasswd", "storageClassName"} {
		if strings.Contains(out, absent) {
			t.Errorf("%s is in\n%s", absent, out)
		}
	}
	out = render(t, "worker-registry", map[string]any{"gcInterval": "1h", "size": "1Gi", "storageClassName": "fast",
		"image": "registry.example.com/worker-registry:1", "htpasswdSecret": "users", "tlsSecret": "cert"})
	expectText(t, out, `"--gc-interval=1h"`, `"storage":"1Gi"`, `"storageClassName":"fast"`, `"scheme":"HTTPS"`,
		`"--tls-cert-file=/tls/tls.crt","--tls-private-key-file=/tls/tls.key"`, `"--htpasswd-file=/htpasswd/htpasswd"`,
		`{"name":"htpasswd","secret":{"secretName":"users"}}`, `"image":"registry.example.com/worker-registry:1"`)
	if strings.Contains(out, `"scheme":"HTTP"`) {
		t.Errorf("a probe uses HTTP:\n%s", out)
	}
}
