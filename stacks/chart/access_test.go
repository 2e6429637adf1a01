package chart

import (
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestNewAccessRefusesInvalidSecrets(t *testing.T) {
	login := func(data ...string) Secrets {
		out := Secrets{Credentials: map[string][]byte{}}
		for i := 0; i < len(data); i += 2 {
			out.Credentials[data[i]] = []byte(data[i+1])
		}
		return out
	}
	cert := func(key, value string) Secrets { return Secrets{Certificates: map[string][]byte{key: []byte(value)}} }
	for name, c := range map[string]struct {
		secrets Secrets
		text    string
	}{
		"no keys":     {login(), "neither username and password"},
		"no password": {login("username", "me"), "neither username and password"},
		"both": {login("username", "me", "password", password, "bearerToken", password),
			"both bearerToken"},
		"line break":          {login("bearerToken", "a\r\nX-Admin: "+password), "line break"},
		"docker for HTTPS":    {login(".dockerconfigjson", "{}"), "only allowed for oci://"},
		"no certificate":      {cert("x", password), "neither ca.crt"},
		"invalid CA":          {cert("ca.crt", password), "no PEM certificate"},
		"certificate, no key": {cert("tls.crt", password), "not a PEM certificate and its private key"},
	} {
		repo := appsv1.ChartRepository{Repository: "https://charts.example.com"}
		ref := &fluxmeta.LocalObjectReference{Name: "s"}
		if c.secrets.Credentials != nil {
			repo.SecretRef = ref
		} else {
			repo.CertSecretRef = ref
		}
		_, err := NewAccess(&repo, c.secrets)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		assertError(t, err, SecretInvalid, true, c.text)
	}
	for name, docker := range map[string]string{"invalid JSON": password,
		"another registry": `{"auths": {"other.example.com": {"password": "` + password + `"}}}`,
		"invalid auth":     `{"auths": {"r.example.com": {"auth": "` + password + `"}}}`} {
		repo := appsv1.ChartRepository{Repository: "oci://r.example.com/charts",
			SecretRef: &fluxmeta.LocalObjectReference{Name: "s"}}
		_, err := NewAccess(&repo, login(".dockerconfigjson", docker))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		assertError(t, err, SecretInvalid, true, ".dockerconfigjson")
	}
	if !sameRegistry("index.docker.io", "registry-1.docker.io") || sameRegistry("a", "b") {
		t.Error("want the names of Docker Hub to be equal, and other names to differ")
	}
}

func TestNewAccessRefusesUnknownProvider(t *testing.T) {
	repo := appsv1.ChartRepository{Repository: "https://charts.example.com",
		Verify: &appsv1.ChartVerification{Provider: "none"}}
	_, err := NewAccess(&repo, Secrets{Keys: map[string][]byte{"k": newSigner(t, nil).public}})
	assertError(t, err, Unverified, true, `"none" is unknown`)
}

func TestNearestVersions(t *testing.T) {
	have := strings.Fields("1.0.0 1.2.0 1.10.0 not-a-version 2.0.0-rc.1 2.0.0 v1.5.0")
	for wanted, want := range map[string]string{
		"1.3.0": "1.0.0, 1.2.0, v1.5.0, 1.10.0", "0.1.0": "1.0.0, 1.2.0", "9.0.0": "2.0.0-rc.1, 2.0.0",
		"2.0.0-rc.2": "1.10.0, 2.0.0-rc.1, 2.0.0", "x": "",
	} {
		if got := nearestVersions(wanted, have); got != want {
			t.Errorf("nearest to %s: %q, want %q", wanted, got, want)
		}
	}
}

func TestFindRepositoryPrefersExactAddress(t *testing.T) {
	with, without := appsv1.ChartRepository{Repository: "https://x.example.com/"},
		appsv1.ChartRepository{Repository: "https://x.example.com"}
	for name, c := range map[string]struct {
		charts []appsv1.ChartRepository
		asked  string
		want   string
	}{
		"trailing slash only in spec.charts": {[]appsv1.ChartRepository{with}, without.Repository,
			with.Repository},
		"entry for each, asked with the slash": {[]appsv1.ChartRepository{without, with}, with.Repository,
			with.Repository},
		"entry for each, asked without the slash": {[]appsv1.ChartRepository{with, without}, without.Repository,
			without.Repository},
		"entry for each, in the other order": {[]appsv1.ChartRepository{with, without}, with.Repository,
			with.Repository},
		"another repository": {[]appsv1.ChartRepository{with, without}, "https://y.example.com",
			""},
		"a path below the repository": {[]appsv1.ChartRepository{with, without}, "https://x.example.com/y",
			""},
		"no entries": {nil, with.Repository, ""},
	} {
		got := ""
		if r := FindRepository(c.charts, c.asked); r != nil {
			got = r.Repository
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
