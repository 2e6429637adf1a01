package chart

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/ProtonMail/go-crypto/openpgp"
)

func FuzzIndex(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nentries:\n  web:\n  - {version: 1.0.0, digest: abc, urls: [web-1.0.0.tgz]}\n",
		`{"entries": {"web": [{"version": "1.0.0", "digest": "abc", "urls": ["x"]}]}}`,
		"entries: {web: &a [*a]}", "entries: {web: null, web: 1}", "- 1", "entries: {web: [{version: 1.0, urls: x}]}",
		"{", "\xff",
		"a: &a [x, x]\nb: &b [*a, *a]\nentries: {web: [{urls: *b}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		versions, names, err := readIndex(data, "web")
		if err != nil && (versions != nil && names != nil) {
			t.Errorf("got an error and versions: %v", err)
		}
		var have []string
		for _, v := range versions {
			have = append(have, v.Version)
		}
		if got := nearestVersions("1.0.0", have); len(got) > 4*(maxVersionLength+2) {
			t.Errorf("got a list of versions of %d characters", len(got))
		}
	})
}

func FuzzProvenance(f *testing.F) {
	s := newSigner(f, nil)
	f.Add(s.sign([]byte("x"), "web-1.0.0.tgz"))
	f.Add([]byte("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nx\n" +
		"-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----"))
	f.Fuzz(func(t *testing.T, prov []byte) {
		if err := verifyProvenance(openpgp.EntityList{s.entity}, prov, digestOf([]byte("y")),
			"web-1.0.0.tgz"); err == nil {
			t.Error("accepted a digest that was not signed")
		}
	})
}

func FuzzSecrets(f *testing.F) {
	s := newSigner(f, nil)
	f.Add([]byte(`{"auths": {"r.example.com": {"auth": "bWU6aHVudGVyMg=="}}}`), s.public)
	f.Add([]byte(`{"auths": {"r.example.com": {"auth": "!"}}}`), s.armored())
	f.Fuzz(func(t *testing.T, docker, key []byte) {
		if auth, err := dockerConfigAuth("r.example.com", docker); err != nil && auth != (authn.AuthConfig{}) {
			t.Error("got an error and credentials")
		}
		if keys, err := readKeyring(map[string][]byte{"k": key}); err == nil && len(keys) == 0 {
			t.Error("got neither an error nor a key")
		}
	})
}
