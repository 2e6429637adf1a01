package kubeconfig_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
)

// secret is contained in every kubeconfig of these tests and must not occur in any message.
const secret = "s3cr3t-t0k3n"

// newKeyPair returns a certificate that expires at a time, and its key, as base64 of PEM.
func newKeyPair(t testing.TB, ends time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

// kubeconfigWith returns a kubeconfig whose context prod has these fields of its cluster and user.
func kubeconfigWith(cluster, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: prod
contexts:
- {name: prod, context: {cluster: prod-eu, user: admin, namespace: kube-system}}
- {name: other, context: {cluster: gone, user: gone}}
clusters:
- {name: prod-eu, cluster: {%s}}
users:
- {name: admin, user: {%s}}
- {name: thief, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}}
`, cluster, user)
}

const (
	server = "server: 'https://api.example.com:6443'"
	token  = "token: " + secret
)

func TestRead(t *testing.T) {
	ends := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	cert, key := newKeyPair(t, ends)
	a, err := kubeconfig.Read([]byte(kubeconfigWith(server+", certificate-authority-data: "+cert,
		"client-certificate-data: "+cert+", client-key-data: "+key)), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Server != "https://api.example.com:6443" || a.Context != "prod" || !a.Expires.Equal(ends) {
		t.Errorf("got %s of %q until %s", a.Server, a.Context, a.Expires)
	}
	cfg, err := a.Config()
	if err != nil || cfg.Host != a.Server || len(cfg.CAData) == 0 || len(cfg.CertData) == 0 || len(cfg.KeyData) == 0 ||
		cfg.ExecProvider != nil {
		t.Errorf("%v: %v", err, cfg)
	}
	small, err := a.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"other", "thief", "exec", "kube-system"} {
		if strings.Contains(string(small), gone) {
			t.Errorf("%s was not removed", gone)
		}
	}
	again, err := kubeconfig.Read(small, kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.YAML(); err != nil || !bytes.Equal(same, small) {
		t.Errorf("reading the YAML again changes it: %v", err)
	}
}

func TestContextSelection(t *testing.T) {
	one := `{apiVersion: v1, kind: Config, contexts: [{name: a, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {` + server + `}}], users: [{name: u, user: {` + token + `}}]}`
	if a, err := kubeconfig.Read([]byte(one), kubeconfig.Options{}); err != nil || a.Context != "a" {
		t.Errorf("the only context is not selected: %v", err)
	}
	if _, err := kubeconfig.Read([]byte(kubeconfigWith(server, token)),
		kubeconfig.Options{Context: "other"}); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("the requested context is not selected: %v", err)
	}
	if _, err := kubeconfig.Read([]byte(kubeconfigWith(server, token)),
		kubeconfig.Options{Context: "none"}); err == nil ||
		!strings.Contains(err.Error(), `the context "none" does not exist`) {
		t.Errorf("got %v", err)
	}
}

// Must-survive 29.
func TestReadRefusesHostileKubeconfigs(t *testing.T) {
	cert, key := newKeyPair(t, time.Now().Add(time.Hour))
	_, another := newKeyPair(t, time.Now().Add(time.Hour))
	for what, c := range map[string]struct{ cluster, user, want string }{
		"exec": {server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/" + secret +
			", interactiveMode: Never}", "runs a program (exec)"},
		"exec and token": {server,
			token + ", exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}",
			"runs a program (exec)"},
		"auth provider": {server, "auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}", "auth-provider"},
		"token file": {server, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
			"names a file in tokenFile"},
		"certificate file": {server, "client-certificate: /etc/" + secret + ", client-key-data: " + key,
			"names a file in client-certificate"},
		"key file": {server, "client-certificate-data: " + cert + ", client-key: /etc/passwd",
			"names a file in client-key"},
		"CA file": {server + ", certificate-authority: /etc/ssl/ca.crt", token,
			"names a file in certificate-authority"},
		"no verification": {server + ", insecure-skip-tls-verify: true", token, "insecure-skip-tls-verify"},
		"no encryption":   {"server: 'http://api.example.com'", token, "does not use https"},
		"another scheme":  {"server: 'unix:///run/docker.sock'", token, "not the address of an API server"},
		"address with user info": {"server: 'https://" + secret + "@api.example.com'", token,
			"not the address of an API server"},
		"address with a query": {"server: 'https://api.example.com?token=" + secret + "'", token,
			"not the address of an API server"},
		"too long address": {"server: 'https://" + strings.Repeat("a", 3000) + "'", token,
			"not the address of an API server"},
		"two kinds of credentials": {server, token + ", username: admin, password: " + secret, "set only one of them"},
		"no address":               {"namespace: x", token, "has no server"},
		"invalid CA": {server + ", certificate-authority-data: " +
			base64.StdEncoding.EncodeToString([]byte(secret)), token, "no certificate in certificate-authority-data"},
		"proxy with another scheme": {server + ", proxy-url: 'file:///etc/" + secret + "'", token, "proxy-url"},
		"impersonated user":         {server, token + ", as: 'system:admin'", "impersonates"},
		"impersonated group":        {server, token + ", as-groups: ['system:masters']", "impersonates"},
		"no credentials":            {server, "password: " + secret, "no credentials"},
		"certificate without key":   {server, "client-certificate-data: " + cert, "without the other"},
		"key of another cert": {server, "client-certificate-data: " + cert + ", client-key-data: " + another,
			"does not match its key"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := kubeconfig.Read([]byte(kubeconfigWith(c.cluster, c.user)), kubeconfig.Options{})
			var refused *kubeconfig.Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error quotes a secret: %v", err)
			}
		})
	}
	for what, data := range map[string]string{
		"empty": "", "no YAML": "{" + secret, "another kind": "apiVersion: v1\nkind: Secret\ndata: {token: " + secret +
			"}",
		"too long": strings.Repeat("#", kubeconfig.MaxBytes+1),
		"no user":  strings.Replace(kubeconfigWith(server, token), "name: admin,", "name: another,", 1),
	} {
		if _, err := kubeconfig.Read([]byte(data), kubeconfig.Options{}); err == nil ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAllowInsecure(t *testing.T) {
	for _, cluster := range []string{server + ", insecure-skip-tls-verify: true", "server: 'http://127.0.0.1:8080'"} {
		if _, err := kubeconfig.Read([]byte(kubeconfigWith(cluster, token)),
			kubeconfig.Options{AllowInsecure: true}); err != nil {
			t.Error(err)
		}
	}
}

func TestArgoCDSecretData(t *testing.T) {
	cert, key := newKeyPair(t, time.Now().Add(time.Hour))
	a, err := kubeconfig.Read([]byte(kubeconfigWith(server+", tls-server-name: kubernetes", "client-certificate-data: "+
		cert+", client-key-data: "+key)), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := a.ArgoCDSecretData("prod")
	if err != nil || string(data["name"]) != "prod" || string(data["server"]) != a.Server {
		t.Fatalf("%v: %s", err, data["server"])
	}
	var got struct {
		TLS map[string]any `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(data["config"], &got); err != nil {
		t.Fatal(err)
	}
	if got.TLS["certData"] != cert || got.TLS["keyData"] != key || got.TLS["serverName"] != "kubernetes" ||
		got.TLS["insecure"] != false {
		t.Errorf("got %v", got.TLS)
	}
}

func TestFormatOmitsCredentials(t *testing.T) {
	a, err := kubeconfig.Read([]byte(kubeconfigWith(server, token)), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{fmt.Sprintf("%v %+v %#v %s", a, a, a, a), fmt.Sprintf("%v %+v", *a, *a)} {
		if strings.Contains(printed, secret) {
			t.Error("the output contains a secret")
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(kubeconfigWith(server, token)), "")
	f.Add([]byte(kubeconfigWith(server+", insecure-skip-tls-verify: true", token)), "prod")
	f.Add([]byte("{}"), "other")
	f.Fuzz(func(t *testing.T, data []byte, context string) {
		a, err := kubeconfig.Read(data, kubeconfig.Options{Context: context})
		if err != nil {
			return
		}
		small, err := a.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := kubeconfig.Read(small, kubeconfig.Options{})
		if err != nil {
			t.Fatalf("an accepted kubeconfig is refused when its YAML is read again: %v", err)
		}
		if again.Server != a.Server {
			t.Errorf("read again, the server is %q instead of %q", again.Server, a.Server)
		}
	})
}
