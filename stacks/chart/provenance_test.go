package chart

import (
	"bytes"
	"crypto"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"helm.sh/helm/v4/pkg/provenance"
)

// signer has a private key, and its public key as in a Secret.
type signer struct {
	t      testing.TB
	entity *openpgp.Entity
	public []byte
}

func newSigner(t testing.TB, config *packet.Config) *signer {
	t.Helper()
	if config == nil {
		config = &packet.Config{}
	}
	config.RSABits, config.DefaultHash = 2048, crypto.SHA512
	entity, err := openpgp.NewEntity("Publisher", "", "p@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := entity.Serialize(&b); err != nil {
		t.Fatal(err)
	}
	return &signer{t: t, entity: entity, public: b.Bytes()}
}

// armored returns the public key in the form of "gpg --armor --export".
func (s *signer) armored() []byte {
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := w.Write(s.public); err != nil {
		s.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

// sign returns the .prov file of an archive, as Helm writes it.
func (s *signer) sign(data []byte, file string) []byte {
	s.t.Helper()
	out, err := (&provenance.Signatory{Entity: s.entity}).ClearSign(data, file, []byte("name: web\nversion: 1.0.0\n"))
	if err != nil {
		s.t.Fatal(err)
	}
	return []byte(out)
}

func TestFetchVerifiesProvenance(t *testing.T) {
	trusted, other := newSigner(t, nil), newSigner(t, nil)
	long := time.Now().Add(-48 * time.Hour)
	expired := newSigner(t, &packet.Config{Time: func() time.Time { return long }, KeyLifetimeSecs: 3600})
	data := archive(t, "web", "1.0.0")
	const file = "web-1.0.0.tgz"
	for name, c := range map[string]struct {
		prov []byte
		keys [][]byte
		text string
	}{
		"signed":             {trusted.sign(data, file), [][]byte{trusted.armored()}, ""},
		"signed, binary key": {trusted.sign(data, file), [][]byte{trusted.public}, ""},
		"signed, one of several": {trusted.sign(data, file),
			[][]byte{other.public, append(other.armored(), append([]byte("\n"), trusted.armored()...)...)}, ""},
		"another key": {other.sign(data, file), [][]byte{trusted.public}, "not signed by a key"},
		"unsigned":    {nil, [][]byte{trusted.public}, "no .prov file"},
		"no signature": {[]byte("files:\n  " + file + ": " + digestOf(data) + "\n"),
			[][]byte{trusted.public}, "no signed message"},
		"signs another archive": {trusted.sign([]byte("x"), file), [][]byte{trusted.public}, "signs another archive"},
		"signs another file name": {trusted.sign(data, "db-1.0.0.tgz"), [][]byte{trusted.public},
			"signs another archive"},
		"tampered after signing": {bytes.Replace(trusted.sign([]byte("x"), file), []byte(digestOf([]byte("x"))),
			[]byte(digestOf(data)), 1), [][]byte{trusted.public}, "signature of the .prov file is invalid"},
		"expired key": {expired.sign(data, file), [][]byte{expired.public}, "has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(t *testing.T, err error) {
				if c.text == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				assertError(t, err, Unverified, true, c.text)
			}
			repo := newRepository(t)
			repo.add("web", "1.0.0", data)
			if c.prov != nil {
				repo.files["/"+file+".prov"] = c.prov
			}
			f := newFetcher(t, Options{})
			// An earlier fetch without verification must not bypass the verification.
			if _, err := get(t, f, ref(repo.URL, "web", "1.0.0"), newAccessBuilder(repo.URL, repo.ca()).
				build(t)); err != nil {
				t.Fatal(err)
			}
			_, err := get(t, f, ref(repo.URL, "web", "1.0.0"),
				newAccessBuilder(repo.URL, repo.ca()).withKeys(c.keys...).build(t))
			check(t, err)

			s := newRegistry(t)
			layers := contentLayer(data)
			if c.prov != nil {
				layers[provenanceMediaType] = c.prov
			}
			s.push("web", "1.0.0", layers)
			_, err = get(t, f, ref(s.url(), "web", "1.0.0"), s.accessBuilder(t).withKeys(c.keys...).build(t))
			check(t, err)
		})
	}
}

func TestFetchFailsIfProvenanceIsUnreachable(t *testing.T) {
	repo := newRepository(t)
	repo.add("web", "1.0.0", archive(t, "web", "1.0.0"))
	repo.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/web-1.0.0.tgz.prov" {
			w.WriteHeader(503)
		}
		return r.URL.Path == "/web-1.0.0.tgz.prov"
	}
	_, err := get(t, newFetcher(t, Options{}), ref(repo.URL, "web", "1.0.0"),
		newAccessBuilder(repo.URL, repo.ca()).withKeys(newSigner(t, nil).public).build(t))
	assertError(t, err, Unreachable, false, ".prov")
	for _, path := range repo.requests {
		if path == "GET /web-1.0.0.tgz" {
			t.Error("the archive was downloaded before the verification")
		}
	}
}

func TestFetchFromRegistryFailsIfProvenanceIsUnreachable(t *testing.T) {
	s, signer, data := newRegistry(t), newSigner(t, nil), archive(t, "web", "1.0.0")
	prov := signer.sign(data, "web-1.0.0.tgz")
	layers := contentLayer(data)
	layers[provenanceMediaType] = prov
	s.push("web", "1.0.0", layers)
	s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		down := strings.HasSuffix(r.URL.Path, "/blobs/"+digestOf(prov))
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return down
	})
	_, err := get(t, newFetcher(t, Options{}), ref(s.url(), "web", "1.0.0"), s.accessBuilder(t).withKeys(signer.public).
		build(t))
	assertError(t, err, Unreachable, false, ".prov")
}

func TestNewAccessRequiresPublicKeys(t *testing.T) {
	for name, keys := range map[string][][]byte{"none": {}, "not a key": {[]byte("hello")}, "empty value": {nil},
		"empty armor": {[]byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----")}} {
		how := newAccessBuilder("https://charts.example.com", nil).withKeys(keys...)
		how.repo.CertSecretRef = nil
		_, err := NewAccess(&how.repo, how.secrets)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		assertError(t, err, SecretInvalid, true, "")
	}
}
