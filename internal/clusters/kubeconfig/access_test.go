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

// secret stands in every kubeconfig here, and must stand in no message.
const secret = "s3cr3t-t0k3n"

// pair is a certificate that ends at a time, and its key, as base64 of PEM.
func pair(t testing.TB, ends time.Time) (cert, key string) {
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

// config is a kubeconfig of a context prod, with these lines of its cluster and user.
func config(cluster, user string) string {
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
	cert, key := pair(t, ends)
	a, err := kubeconfig.Read([]byte(config(server+", certificate-authority-data: "+cert, "client-certificate-data: "+cert+", client-key-data: "+key)), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Server != "https://api.example.com:6443" || a.Context != "prod" || !a.Expires.Equal(ends) {
		t.Errorf("got %s of %q until %s", a.Server, a.Context, a.Expires)
	}
	cfg, err := a.Config()
	if err != nil || cfg.Host != a.Server || len(cfg.CAData) == 0 || len(cfg.CertData) == 0 || len(cfg.KeyData) == 0 || cfg.ExecProvider != nil {
		t.Errorf("%v: %v", err, cfg)
	}
	small, err := a.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"other", "thief", "exec", "kube-system"} {
		if strings.Contains(string(small), gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	again, err := kubeconfig.Read(small, kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.YAML(); err != nil || !bytes.Equal(same, small) {
		t.Errorf("read again it is another: %v", err)
	}
}

func TestContexts(t *testing.T) {
	one := `{apiVersion: v1, kind: Config, contexts: [{name: a, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {` + server + `}}], users: [{name: u, user: {` + token + `}}]}`
	if a, err := kubeconfig.Read([]byte(one), kubeconfig.Options{}); err != nil || a.Context != "a" {
		t.Errorf("the only one is not chosen: %v", err)
	}
	if _, err := kubeconfig.Read([]byte(config(server, token)), kubeconfig.Options{Context: "other"}); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("the wanted one is not chosen: %v", err)
	}
	if _, err := kubeconfig.Read([]byte(config(server, token)), kubeconfig.Options{Context: "none"}); err == nil || !strings.Contains(err.Error(), `no context "none"`) {
		t.Errorf("got %v", err)
	}
}

// Must-survive 29.
func TestHostileKubeconfigsAreRefused(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	_, another := pair(t, time.Now().Add(time.Hour))
	for what, c := range map[string]struct{ cluster, user, want string }{
		"a program":             {server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/" + secret + ", interactiveMode: Never}", "runs a program (exec)"},
		"a program and a token": {server, token + ", exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}", "runs a program (exec)"},
		"a plug-in":             {server, "auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}", "auth-provider"},
		"a token in a file":     {server, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token", "names a file in tokenFile"},
		"a certificate in a file": {server, "client-certificate: /etc/" + secret + ", client-key-data: " + key,
			"names a file in client-certificate"},
		"a key in a file":           {server, "client-certificate-data: " + cert + ", client-key: /etc/passwd", "names a file in client-key"},
		"an authority in a file":    {server + ", certificate-authority: /etc/ssl/ca.crt", token, "names a file in certificate-authority"},
		"no verification":           {server + ", insecure-skip-tls-verify: true", token, "insecure-skip-tls-verify"},
		"no encryption":             {"server: 'http://api.example.com'", token, "not reached by https"},
		"another scheme":            {"server: 'unix:///run/docker.sock'", token, "no address of an API server"},
		"an address with a secret":  {"server: 'https://" + secret + "@api.example.com'", token, "no address of an API server"},
		"an address with a query":   {"server: 'https://api.example.com?token=" + secret + "'", token, "no address of an API server"},
		"a long address":            {"server: 'https://" + strings.Repeat("a", 3000) + "'", token, "no address of an API server"},
		"two kinds of credentials":  {server, token + ", username: admin, password: " + secret, "leave one of the two out"},
		"no address":                {"namespace: x", token, "has no server"},
		"an authority that is none": {server + ", certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(secret)), token, "no certificate in certificate-authority-data"},
		"a proxy of another scheme": {server + ", proxy-url: 'file:///etc/" + secret + "'", token, "proxy-url"},
		"somebody else":             {server, token + ", as: 'system:admin'", "impersonates"},
		"a group of somebody else":  {server, token + ", as-groups: ['system:masters']", "impersonates"},
		"no credentials":            {server, "password: " + secret, "no credentials"},
		"a certificate alone":       {server, "client-certificate-data: " + cert, "without the other"},
		"another's key":             {server, "client-certificate-data: " + cert + ", client-key-data: " + another, "its key is another's"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := kubeconfig.Read([]byte(config(c.cluster, c.user)), kubeconfig.Options{})
			var refused *kubeconfig.Error
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("it tells a secret: %v", err)
			}
		})
	}
	for what, data := range map[string]string{
		"nothing": "", "no YAML": "{" + secret, "another kind": "apiVersion: v1\nkind: Secret\ndata: {token: " + secret + "}",
		"too long": strings.Repeat("#", kubeconfig.MaxBytes+1),
		"no user":  strings.Replace(config(server, token), "name: admin,", "name: another,", 1),
	} {
		if _, err := kubeconfig.Read([]byte(data), kubeconfig.Options{}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestInsecureOnlyWhereAllowed(t *testing.T) {
	for _, cluster := range []string{server + ", insecure-skip-tls-verify: true", "server: 'http://127.0.0.1:8080'"} {
		if _, err := kubeconfig.Read([]byte(config(cluster, token)), kubeconfig.Options{AllowInsecure: true}); err != nil {
			t.Error(err)
		}
	}
}

func TestArgoCD(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	a, err := kubeconfig.Read([]byte(config(server+", tls-server-name: kubernetes", "client-certificate-data: "+cert+", client-key-data: "+key)), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := a.ArgoCD("prod")
	if err != nil || string(data["name"]) != "prod" || string(data["server"]) != a.Server {
		t.Fatalf("%v: %s", err, data["server"])
	}
	var got struct {
		TLS map[string]any `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(data["config"], &got); err != nil {
		t.Fatal(err)
	}
	if got.TLS["certData"] != cert || got.TLS["keyData"] != key || got.TLS["serverName"] != "kubernetes" || got.TLS["insecure"] != false {
		t.Errorf("got %v", got.TLS)
	}
}

func TestAccessIsNotPrinted(t *testing.T) {
	a, err := kubeconfig.Read([]byte(config(server, token)), kubeconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{fmt.Sprintf("%v %+v %#v %s", a, a, a, a), fmt.Sprintf("%v %+v", *a, *a)} {
		if strings.Contains(said, secret) {
			t.Error("it tells a secret")
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(config(server, token)), "")
	f.Add([]byte(config(server+", insecure-skip-tls-verify: true", token)), "prod")
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
			t.Fatalf("what was taken is refused when it is read again: %v", err)
		}
		if again.Server != a.Server {
			t.Errorf("it reaches %q, and did %q", again.Server, a.Server)
		}
	})
}
