package source

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/cluster/signatures"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

const registryPassword = "s3cret-of-the-registry"

// ociTest is a source with an OCI registry, behind a proxy that counts requests and may require a
// password.
type ociTest struct {
	*sourceTest
	registry     *registry.Server
	proxy        *httptest.Server
	requestCount atomic.Int64
	private      atomic.Bool
}

func newOCITest(t *testing.T) *ociTest {
	t.Helper()
	server, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	r := &ociTest{sourceTest: newSourceTest(t), registry: server}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server.Host()})
	r.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requestCount.Add(1)
		if _, password, _ := req.BasicAuth(); r.private.Load() && password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="fleet"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(r.proxy.Close)
	r.obj.Spec.Git = nil
	r.obj.Spec.OCI = &appsv1.OCISource{URL: oci.Scheme + r.host() + "/team/fleet", Insecure: true}
	return r
}

func (r *ociTest) host() string { return strings.TrimPrefix(r.proxy.URL, "http://") }

func (r *ociTest) push(tag, body string) string {
	r.t.Helper()
	digest, err := r.registry.Push(r.t.Context(), "team/fleet", tag,
		artifacts.Files(map[string]string{"a": body, "docs/b": "b"}), "main@sha1:abc")
	if err != nil {
		r.t.Fatal(err)
	}
	return digest
}

func (r *ociTest) requests(f func()) int64 {
	before := r.requestCount.Load()
	f()
	return r.requestCount.Load() - before
}

// secretOf creates or replaces a Secret of a type.
func (r *ociTest) secretOf(name string, kind corev1.SecretType, data map[string][]byte) {
	r.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name}, Type: kind, Data: data}
	err := r.api.Create(r.t.Context(), s)
	if err != nil {
		s.ResourceVersion = ""
		err = r.api.Update(r.t.Context(), s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *ociTest) pullSecret(name, password string) {
	auth := base64.StdEncoding.EncodeToString([]byte("robot:" + password))
	r.secretOf(name, corev1.SecretTypeDockerConfigJson,
		map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, r.host(), auth)})
}

func named(name string) *fluxmeta.LocalObjectReference {
	return &fluxmeta.LocalObjectReference{Name: name}
}

func TestFollowsOCITag(t *testing.T) {
	r := newOCITest(t)
	first := r.push("latest", "1")
	r.done()
	a := r.obj.Status.Artifact.DeepCopy()
	if a.Revision != "latest@"+first || r.content("a") != "1" ||
		a.Metadata["org.opencontainers.image.revision"] != "main@sha1:abc" {
		t.Errorf("artifact %+v with %q", a, r.content("a"))
	}
	before := r.obj.DeepCopy()
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	if n := r.requests(func() { r.done() }); n != 2 { // the ping and the tag
		t.Errorf("%d requests for an unchanged tag, want 2", n)
	}
	if !reflect.DeepEqual(before, r.obj) {
		t.Errorf("the status changed: %+v", r.obj.Status)
	}
	second := r.push("latest", "2")
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "latest@"+second || r.content("a") != "2" {
		t.Errorf("revision %s with %q", got, r.content("a"))
	}
	if len(r.storedFiles()) != 2 {
		t.Errorf("stored %v, want the current and the previous artifact", r.storedFiles())
	}
}

func TestOCIRestartFetchesNothing(t *testing.T) {
	r := newOCITest(t)
	r.push("latest", "1")
	r.done()
	r.start()
	if n := r.requests(func() { r.done() }); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestOCIRefs(t *testing.T) {
	r := newOCITest(t)
	old, latest := r.push("v1.2.0", "old"), r.push("v1.10.0", "new")
	r.obj.Spec.OCI.Ref = &appsv1.OCIRef{SemVer: "1.x"}
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "v1.10.0@"+latest {
		t.Errorf("revision %s", got)
	}
	r.obj.Spec.OCI.Ref = &appsv1.OCIRef{Digest: old}
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != old || r.content("a") != "old" {
		t.Errorf("revision %s with %q", got, r.content("a"))
	}
	if n := r.requests(func() { r.done() }); n != 0 {
		t.Errorf("%d requests for a stored digest, want none", n)
	}
	r.obj.Spec.OCI.Ref = &appsv1.OCIRef{Tag: "v1.2.0"}
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "v1.2.0@"+old {
		t.Errorf("revision %s", got)
	}
}

func TestOCIIgnoreAndLayerSelector(t *testing.T) {
	r := newOCITest(t)
	r.push("latest", "1")
	r.done()
	if r.content("docs/b") != "b" {
		t.Error("docs/b is missing")
	}
	r.obj.Spec.Ignore = "docs/"
	r.done()
	if r.content("docs/b") != "" || r.content("a") != "1" {
		t.Error("docs/b is not ignored")
	}
	r.obj.Spec.OCI.LayerSelector = &appsv1.OCILayerSelector{MediaType: "text/plain"}
	if message := r.stalledMessage(string(oci.LayerNotFound)); !strings.Contains(message, "text/plain") {
		t.Errorf("got %s", message)
	}
}

func TestOCICredentials(t *testing.T) {
	r := newOCITest(t)
	r.push("latest", "1")
	r.private.Store(true)
	r.failed(string(oci.AuthenticationRequired))

	r.obj.Spec.OCI.SecretRef = named("login")
	if message := r.failed(appsv1.SecretNotFoundReason); !strings.Contains(message, "team/login") ||
		!strings.Contains(message, "spec.oci.secretRef") {
		t.Errorf("got %s", message)
	}
	r.pullSecret("login", "wrong")
	r.failed(string(oci.AuthenticationFailed))
	r.pullSecret("login", registryPassword)
	r.done()

	r.obj.Spec.OCI.SecretRef, r.obj.Spec.OCI.ServiceAccountName = nil, "puller"
	if message := r.failed(appsv1.ServiceAccountNotFoundReason); !strings.Contains(message, "team/puller") {
		t.Errorf("got %s", message)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "puller"},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "login"}}}
	if err := r.api.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	r.done()
}

func TestInvalidOCISecrets(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*appsv1.OCISource)
		kind   corev1.SecretType
		data   map[string][]byte
		reason string
		says   string
	}{
		"other type": {func(o *appsv1.OCISource) { o.SecretRef = named("x") }, corev1.SecretTypeOpaque,
			map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"a":{"auth":"eDp5"}}}`)},
			gitsecret.InvalidReason, "docker-registry"},
		"not JSON": {func(o *appsv1.OCISource) { o.SecretRef = named("x") }, corev1.SecretTypeDockerConfigJson,
			map[string][]byte{corev1.DockerConfigJsonKey: []byte(registryPassword)}, gitsecret.InvalidReason,
			"spec.oci.secretRef"},
		"credential helper": {func(o *appsv1.OCISource) { o.SecretRef = named("x") }, corev1.SecretTypeDockerConfigJson,
			map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"credsStore":"evil"}`)}, gitsecret.InvalidReason,
			"spec.oci.secretRef"},
		"invalid registry": {func(o *appsv1.OCISource) { o.SecretRef = named("x") }, corev1.SecretTypeDockerConfigJson,
			map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"%zz` + registryPassword +
				`":{"auth":"eDp5"}}}`)}, gitsecret.InvalidReason, "registry"},
		"no CA": {func(o *appsv1.OCISource) {
			o.CertSecretRef = named("x")
		}, corev1.SecretTypeOpaque, nil, gitsecret.InvalidReason, "ca.crt"},
		"invalid CA": {func(o *appsv1.OCISource) { o.CertSecretRef = named("x") }, corev1.SecretTypeOpaque,
			map[string][]byte{"ca.crt": []byte(registryPassword)}, gitsecret.InvalidReason, "ca.crt"},
		"certificate without a key": {func(o *appsv1.OCISource) { o.CertSecretRef = named("x") }, corev1.SecretTypeTLS,
			map[string][]byte{"tls.crt": []byte(registryPassword)}, gitsecret.InvalidReason, "tls.key"},
		"proxy without an address": {func(o *appsv1.OCISource) {
			o.ProxySecretRef = named("x")
		}, corev1.SecretTypeOpaque, nil, gitsecret.InvalidReason, "spec.oci.proxySecretRef"},
		"no keys": {func(o *appsv1.OCISource) {
			o.Verify = &appsv1.OCIVerification{Provider: appsv1.Cosign, SecretRef: named("x")}
		}, corev1.SecretTypeOpaque,
			nil, string(verify.MaterialInvalid), "spec.oci.verify.secretRef"},
		"no root": {func(o *appsv1.OCISource) {
			o.Verify = &appsv1.OCIVerification{Provider: appsv1.Cosign, TrustedRootSecretRef: named("x"),
				MatchOIDCIdentity: []appsv1.OIDCIdentityMatch{{Issuer: "a", Subject: "b"}}}
		}, corev1.SecretTypeOpaque, nil, gitsecret.InvalidReason, "trusted_root.json"},
		"no policy": {func(o *appsv1.OCISource) {
			o.Verify = &appsv1.OCIVerification{Provider: appsv1.Notation, SecretRef: named("x")}
		}, corev1.SecretTypeOpaque,
			nil, string(verify.MaterialInvalid), "trustpolicy.json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newOCITest(t)
			r.push("latest", "1")
			r.secretOf("x", c.kind, c.data)
			c.set(r.obj.Spec.OCI)
			message := r.stalledMessage(c.reason)
			if !strings.Contains(message, c.says) || strings.Contains(message, registryPassword) {
				t.Errorf("got %s", message)
			}
			if got := secretNames(r.obj); len(got) != 1 || got[0] != "x" {
				t.Errorf("the Secret is not watched: %v", got)
			}
		})
	}
}

func TestOCISignatures(t *testing.T) {
	subject, issuer := "release@example.com", "https://accounts.example.com"
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type signer func(context.Context, signatures.Artifact) error
	for name, provide := range map[string]func(t *testing.T, r *ociTest) (trusted, untrusted signer){
		"cosign with a key": func(t *testing.T, r *ociTest) (trusted, untrusted signer) {
			k, err := signatures.NewKey()
			must(t, err)
			other, err := signatures.NewKey()
			must(t, err)
			pem, err := k.PEM()
			must(t, err)
			r.secretOf("trusted", corev1.SecretTypeOpaque, map[string][]byte{"cosign.pub": pem})
			r.obj.Spec.OCI.Verify = &appsv1.OCIVerification{Provider: appsv1.Cosign, SecretRef: named("trusted")}
			return k.SignWithTag, other.SignWithTag
		},
		"cosign without a key": func(t *testing.T, r *ociTest) (trusted, untrusted signer) {
			s, err := signatures.NewSigstore()
			must(t, err)
			root, err := s.TrustedRoot(signatures.TrustedRootOptions{})
			must(t, err)
			r.secretOf("trusted", corev1.SecretTypeOpaque, map[string][]byte{"trusted_root.json": root})
			r.obj.Spec.OCI.Verify = &appsv1.OCIVerification{Provider: appsv1.Cosign,
				TrustedRootSecretRef: named("trusted"),
				MatchOIDCIdentity: []appsv1.OIDCIdentityMatch{{Issuer: "^https://accounts\\.example\\.com$",
					Subject: "^release@example\\.com$"}}}
			by := func(who string) signer {
				return func(ctx context.Context, a signatures.Artifact) error {
					return s.SignWithReferrer(ctx, a, who, issuer, time.Minute)
				}
			}
			return by(subject), by("mallory@example.com")
		},
		"notation": func(t *testing.T, r *ociTest) (trusted, untrusted signer) {
			n, err := signatures.NewNotary(time.Now().Add(-45 * time.Minute))
			must(t, err)
			other, err := signatures.NewNotary(time.Now().Add(-45 * time.Minute))
			must(t, err)
			policy, err := signatures.TrustPolicy("strict")
			must(t, err)
			r.secretOf("trusted", corev1.SecretTypeOpaque,
				map[string][]byte{"trustpolicy.json": policy, "ca.crt": n.PEM()})
			r.obj.Spec.OCI.Verify = &appsv1.OCIVerification{Provider: appsv1.Notation, SecretRef: named("trusted")}
			return n.Sign, other.Sign
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newOCITest(t)
			at := func(digest string) signatures.Artifact {
				return signatures.Artifact{Repository: r.registry.Host() + "/team/fleet", Digest: digest}
			}
			digest := r.push("latest", "1")
			r.done() // before verification is required
			trusted, untrusted := provide(t, r)
			r.failed(string(verify.Unsigned))
			if r.obj.Status.Artifact != nil || len(r.storedFiles()) != 0 {
				t.Errorf("an unverified artifact stays: %+v %v", r.obj.Status.Artifact, r.storedFiles())
			}
			must(t, untrusted(t.Context(), at(digest)))
			r.failed(string(verify.Untrusted))
			must(t, trusted(t.Context(), at(digest)))
			d := r.done()
			if r.content("a") != "1" || r.obj.Status.Artifact.Metadata[signedByKey] == "" ||
				!strings.Contains(d.Message, "signature verified") {
				t.Errorf("artifact %+v, %s", r.obj.Status.Artifact, d.Message)
			}
			if n := r.requests(func() { r.done() }); n != 2 {
				t.Errorf("%d requests for a verified artifact, want 2", n)
			}

			// The next artifact is not signed: the verified one stays.
			r.push("latest", "2")
			r.failed(string(verify.Unsigned))
			if r.content("a") != "1" {
				t.Error("the verified artifact is lost")
			}
			// The registry is down.
			r.proxy.Close()
			r.failed(string(oci.OperationFailed))
			if r.content("a") != "1" {
				t.Error("the verified artifact is lost")
			}
		})
	}
}

func TestOCIKeyChangeWithdrawsArtifact(t *testing.T) {
	r := newOCITest(t)
	k, err := signatures.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	pem, err := k.PEM()
	if err != nil {
		t.Fatal(err)
	}
	r.secretOf("trusted", corev1.SecretTypeOpaque, map[string][]byte{"cosign.pub": pem})
	r.obj.Spec.OCI.Verify = &appsv1.OCIVerification{Provider: appsv1.Cosign, SecretRef: named("trusted")}
	digest := r.push("latest", "1")
	if err := k.SignWithReferrer(t.Context(),
		signatures.Artifact{Repository: r.registry.Host() + "/team/fleet", Digest: digest}); err != nil {
		t.Fatal(err)
	}
	r.done()
	other, err := signatures.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if pem, err = other.PEM(); err != nil {
		t.Fatal(err)
	}
	r.secretOf("trusted", corev1.SecretTypeOpaque, map[string][]byte{"cosign.pub": pem})
	r.failed(string(verify.Untrusted))
	if r.obj.Status.Artifact != nil {
		t.Error("an artifact with an untrusted signature stays")
	}
}

func TestOCIFailures(t *testing.T) {
	t.Run("tag not found", func(t *testing.T) {
		r := newOCITest(t)
		r.obj.Spec.OCI.Ref = &appsv1.OCIRef{Tag: "nothing"}
		r.failed(string(oci.ArtifactNotFound))
	})
	t.Run("invalid range", func(t *testing.T) {
		r := newOCITest(t)
		r.obj.Spec.OCI.Ref = &appsv1.OCIRef{SemVer: "newest"}
		r.stalled(string(oci.SemVerInvalid))
	})
	t.Run("link-local address", func(t *testing.T) {
		r := newOCITest(t)
		r.obj.Spec.OCI.URL = "oci://169.254.169.254/x/y"
		r.stalled(string(oci.URLInvalid))
	})
	t.Run("plain http", func(t *testing.T) {
		r := newOCITest(t)
		r.push("latest", "1")
		r.obj.Spec.OCI.Insecure = false
		if message := r.failed(string(oci.OperationFailed)); !strings.Contains(message, "insecure: true") {
			t.Errorf("got %s", message)
		}
	})
	t.Run("too large", func(t *testing.T) {
		r := newOCITest(t)
		r.limits = artifact.Limits{FileBytes: 100}
		r.start()
		r.push("latest", strings.Repeat("x", 101))
		r.stalled(string(artifact.TooLarge))
		if left := r.storedFiles(); len(left) > 0 {
			t.Errorf("stored files: %v", left)
		}
	})
}
