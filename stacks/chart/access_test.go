package chart

import (
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestSecretsThatAreWrong(t *testing.T) {
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
		"empty":               {login(), "neither username and password"},
		"no password":         {login("username", "me"), "neither username and password"},
		"both":                {login("username", "me", "password", password, "bearerToken", password), "both bearerToken"},
		"a line break":        {login("bearerToken", "a\r\nX-Admin: "+password), "line break"},
		"docker for https":    {login(".dockerconfigjson", "{}"), "is for oci://"},
		"no certificate":      {cert("x", password), "neither ca.crt"},
		"a CA that is none":   {cert("ca.crt", password), "no certificate in PEM"},
		"a certificate alone": {cert("tls.crt", password), "not a certificate and its key"},
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
		refused(t, err, SecretInvalid, true, c.text)
	}
	for name, docker := range map[string]string{"no JSON": password, "another registry": `{"auths": {"other.example.com": {"password": "` + password + `"}}}`, "a broken auth": `{"auths": {"r.example.com": {"auth": "` + password + `"}}}`} {
		repo := appsv1.ChartRepository{Repository: "oci://r.example.com/charts", SecretRef: &fluxmeta.LocalObjectReference{Name: "s"}}
		_, err := NewAccess(&repo, login(".dockerconfigjson", docker))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		refused(t, err, SecretInvalid, true, ".dockerconfigjson")
	}
	if !sameRegistry("index.docker.io", "registry-1.docker.io") || sameRegistry("a", "b") {
		t.Error("Docker's registry has several names, others one")
	}
}

func TestUnknownProviderIsRefused(t *testing.T) {
	repo := appsv1.ChartRepository{Repository: "https://charts.example.com", Verify: &appsv1.ChartVerification{Provider: "none"}}
	_, err := NewAccess(&repo, Secrets{Keys: map[string][]byte{"k": newSigner(t, nil).public}})
	refused(t, err, Unverified, true, `"none" is not known`)
}

func TestNearest(t *testing.T) {
	have := strings.Fields("1.0.0 1.2.0 1.10.0 not-a-version 2.0.0-rc.1 2.0.0 v1.5.0")
	for wanted, want := range map[string]string{
		"1.3.0": "1.0.0, 1.2.0, v1.5.0, 1.10.0", "0.1.0": "1.0.0, 1.2.0", "9.0.0": "2.0.0-rc.1, 2.0.0", "2.0.0-rc.2": "1.10.0, 2.0.0-rc.1, 2.0.0", "x": "",
	} {
		if got := nearest(wanted, have); got != want {
			t.Errorf("nearest to %s: %q, want %q", wanted, got, want)
		}
	}
}

func TestForTakesTheOneThatIsMeant(t *testing.T) {
	with, without := appsv1.ChartRepository{Repository: "https://x.example.com/"}, appsv1.ChartRepository{Repository: "https://x.example.com"}
	for name, c := range map[string]struct {
		charts []appsv1.ChartRepository
		asked  string
		want   string
	}{
		"a slash makes no other one":      {[]appsv1.ChartRepository{with}, without.Repository, with.Repository},
		"unless there is one for each":    {[]appsv1.ChartRepository{without, with}, with.Repository, with.Repository},
		"whatever their order":            {[]appsv1.ChartRepository{with, without}, without.Repository, without.Repository},
		"the first as well":               {[]appsv1.ChartRepository{with, without}, with.Repository, with.Repository},
		"another one is nobody's":         {[]appsv1.ChartRepository{with, without}, "https://y.example.com", ""},
		"nor is one below one that is":    {[]appsv1.ChartRepository{with, without}, "https://x.example.com/y", ""},
		"nothing is said of a repository": {nil, with.Repository, ""},
	} {
		got := ""
		if r := For(c.charts, c.asked); r != nil {
			got = r.Repository
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
