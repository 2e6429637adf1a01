package source

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

func ref(name string) *fluxmeta.LocalObjectReference {
	return &fluxmeta.LocalObjectReference{Name: name}
}

func TestGitCredentials(t *testing.T) {
	r := newSourceTest(t, gitserver.WithBasicAuth("user", "hunter2-hunter2"))
	r.commit(map[string]string{"a": "a"})
	r.failed(string(git.AuthenticationRequired))
	r.obj.Spec.Git.SecretRef = ref("login")
	if message := r.failed(appsv1.SecretNotFoundReason); !strings.Contains(message, "team/login") {
		t.Errorf("the error does not name the Secret: %s", message)
	}
	for name, c := range map[string]struct {
		data   map[string]string
		reason string
		says   string
	}{
		"empty":       {nil, gitsecret.InvalidReason, "neither username"},
		"no password": {map[string]string{"username": "user"}, gitsecret.InvalidReason, "has no password"},
		"no username": {map[string]string{"password": "hunter2-hunter2"}, gitsecret.InvalidReason,
			"has no username"},
		"invalid CA": {map[string]string{"ca.crt": "x"}, gitsecret.InvalidReason, "ca.crt"},
		"login and token": {map[string]string{"username": "u", "password": "hunter2-hunter2", "bearerToken": "x"},
			gitsecret.InvalidReason, "bearerToken"},
	} {
		t.Run(name, func(t *testing.T) {
			r.secret("login", c.data)
			r.t = t
			if message := r.stalledMessage(c.reason); !strings.Contains(message, c.says) ||
				strings.Contains(message, "hunter2") {
				t.Errorf("got %s, want %q", message, c.says)
			}
		})
	}
	r.t = t
	r.secret("login", map[string]string{"username": "user", "password": "hunter3-hunter3"})
	if message := r.failed(string(git.AuthenticationFailed)); strings.Contains(message, "hunter3") {
		t.Errorf("the error contains the password: %s", message)
	}
	r.secret("login", map[string]string{"username": "user\n", "password": "hunter2-hunter2\n"})
	r.done()
	if got := r.content("a"); got != "a" {
		t.Errorf("got %q", got)
	}
	r.secret("login", map[string]string{"username": "user", "password": "revoked-revoked"})
	r.failed(string(git.AuthenticationFailed))
	if got := r.content("a"); got != "a" {
		t.Errorf("the artifact is lost: %q", got)
	}
}

func TestGitOverSSH(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	key, err := gitserver.NewKey("open-sesame")
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.server.ServeSSH(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	r.obj.Spec.Git = &appsv1.GitSource{URL: d.URL(r.repo), SecretRef: ref("key")}
	whole := map[string]string{"identity": string(key.Private), "password": "open-sesame",
		"known_hosts": d.KnownHosts()}
	for _, missing := range []string{"identity", "known_hosts", "password"} {
		data := map[string]string{}
		for k, v := range whole {
			if k != missing {
				data[k] = v
			}
		}
		r.secret("key", data)
		if message := r.stalledMessage(gitsecret.InvalidReason); !strings.Contains(message, missing) {
			t.Errorf("without %s: %s", missing, message)
		}
	}
	r.secret("key", whole)
	r.done()
	if got := r.content("a"); got != "a" {
		t.Errorf("got %q", got)
	}
	before := d.Connections()
	r.done()
	if n := d.Connections() - before; n != 1 {
		t.Errorf("%d connections without a change, want 1", n)
	}
}

func TestGitProxy(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	credentials := ""
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password,
			_ := (&http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}).BasicAuth()
		credentials = user + ":" + password
		r.server.Handler().ServeHTTP(w, req)
	}))
	defer proxy.Close()
	r.obj.Spec.Git.ProxySecretRef = ref("proxy")
	r.failed(appsv1.SecretNotFoundReason)
	for _, address := range []string{"", "proxy:3128", "ftp://proxy", "::"} {
		r.secret("proxy", map[string]string{"address": address})
		if message := r.stalledMessage(gitsecret.InvalidReason); !strings.Contains(message, "address") {
			t.Errorf("%q: %s", address, message)
		}
	}
	r.secret("proxy", map[string]string{"address": proxy.URL, "username": "user", "password": "hunter2-hunter2"})
	r.done()
	if credentials != "user:hunter2-hunter2" {
		t.Errorf("the proxy received %q", credentials)
	}
}

func TestSecretNames(t *testing.T) {
	obj := &appsv1.KsctlSource{}
	if got := secretNames(obj); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	obj.Spec.Git = &appsv1.GitSource{SecretRef: ref("b"), ProxySecretRef: ref("a")}
	if got := secretNames(obj); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("got %v", got)
	}
	obj.Spec.Git.Verify = &appsv1.GitVerification{SecretRef: *ref("c")}
	if got := secretNames(obj); !reflect.DeepEqual(got, []string{"a", "b", "c"}) {
		t.Errorf("got %v", got)
	}
	obj.Spec.Git.Verify = nil
	obj.Spec.Git.ProxySecretRef = ref("b")
	if got := secretNames(obj); !reflect.DeepEqual(got, []string{"b"}) {
		t.Errorf("got %v", got)
	}
}
