package git

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

type signer struct {
	sign   gitserver.SignFunc
	public []byte
}

func newPGPSigner(t testing.TB, made time.Time, valid time.Duration) signer {
	t.Helper()
	k, err := gitserver.NewPGPKey(made, valid)
	if err != nil {
		t.Fatal(err)
	}
	return signer{k.Sign, k.Export()}
}

func newSSHSigner(t testing.TB, options string) signer {
	t.Helper()
	k, err := gitserver.NewKey("")
	if err != nil {
		t.Fatal(err)
	}
	return signer{k.Sign, []byte(options + k.Public)}
}

// signTampered signs other content than the given payload, as if the content was changed after
// signing.
func signTampered(sign gitserver.SignFunc) gitserver.SignFunc {
	return func(payload []byte) ([]byte, error) { return sign(append([]byte("x"), payload...)) }
}

// The tests cover each kind of key, for commits and for tags.
func TestVerifySignatures(t *testing.T) {
	_, repo := newRepo(t)
	plain := commit(t, repo, map[string]string{"a": "a"})
	unsigned := func([]byte) ([]byte, error) { return nil, nil }
	damaged := func(sign gitserver.SignFunc) gitserver.SignFunc {
		return func(payload []byte) ([]byte, error) {
			s, err := sign(payload)
			lines := bytes.SplitAfter(s, []byte("\n"))
			return bytes.Join(append(lines[:2:2], lines[3:]...), nil), err
		}
	}
	as := func(begin string) gitserver.SignFunc {
		return func([]byte) ([]byte, error) { return []byte(begin + "\n\nAAAA\n-----END\n"), nil }
	}
	for kind, k := range map[string]struct{ mine, other, expired signer }{
		"GPG": {newPGPSigner(t, now.Add(-time.Hour), 0), newPGPSigner(t, now.Add(-time.Hour), 0),
			newPGPSigner(t, now.Add(-48*time.Hour), 24*time.Hour)},
		"SSH": {newSSHSigner(t, ""), newSSHSigner(t, ""), newSSHSigner(t, `me@example.com valid-before="20260101" `)},
	} {
		for name, c := range map[string]struct {
			sign gitserver.SignFunc
			keys []byte
			want Reason
		}{
			"right key": {k.mine.sign, k.mine.public, ""},
			"right key among others": {k.mine.sign,
				append(append(bytes.Clone(k.other.public), k.expired.public...), k.mine.public...), ""},
			"wrong key":                          {k.mine.sign, k.other.public, SignerUnknown},
			"unsigned":                           {unsigned, k.mine.public, SignatureMissing},
			"tampered after signing":             {signTampered(k.mine.sign), k.mine.public, SignatureInvalid},
			"expired key":                        {k.expired.sign, k.expired.public, SignerExpired},
			"tampered, expired key":              {signTampered(k.expired.sign), k.expired.public, SignatureInvalid},
			"damaged signature":                  {damaged(k.mine.sign), k.mine.public, SignatureInvalid},
			"X.509":                              {as(x509Signature), k.mine.public, SignatureInvalid},
			"OpenPGP header without a signature": {as(pgpSignature), k.mine.public, SignatureInvalid},
			"SSH header without a signature":     {as(sshSignature), k.mine.public, SignatureInvalid},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				keys, err := ParseKeys(map[string][]byte{"key": c.keys})
				if err != nil {
					t.Fatal(err)
				}
				signedCommit, err := repo.SignCommit(t.Context(), plain, "m", c.sign)
				if err != nil {
					t.Fatal(err)
				}
				if err := repo.SetBranch(t.Context(), "main", signedCommit); err != nil {
					t.Fatal(err)
				}
				if _, err := repo.SignTag(t.Context(), "v1", plain, c.sign); err != nil {
					t.Fatal(err)
				}
				r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: repo.URL()})
				if err != nil {
					t.Fatal(err)
				}
				if got := reasonOf(t, fetchCheckout(t, r, signedCommit).VerifyCommit(keys, now)); got != c.want {
					t.Errorf("commit: reason %q, want %q", got, c.want)
				}
				if got := reasonOf(t, fetchTag(t, r, "v1").VerifyTag(keys, now)); got != c.want {
					t.Errorf("tag: reason %q, want %q", got, c.want)
				}
			})
		}
	}
}

func fetchTag(t *testing.T, r *Remote, name string) *Checkout {
	t.Helper()
	tag, err := r.Tag(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.FetchTag(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestVerifyTagRejectsOtherNameOrObject(t *testing.T) {
	_, repo := newRepo(t)
	old := commit(t, repo, map[string]string{"a": "old"})
	key := newSSHSigner(t, "")
	keys, err := ParseKeys(map[string][]byte{"k": key.public})
	if err != nil {
		t.Fatal(err)
	}
	v1, err := repo.SignTag(t.Context(), "v1", old, key.sign)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := repo.WriteObject(t.Context(), "tag", "object "+v1+"\ntype tag\ntag v3\ntagger e <e@x> 0 +0000\n\nx\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"v2": v1, "v3": inner, "v4": old} {
		if err := repo.SetTag(t.Context(), name, id); err != nil {
			t.Fatal(err)
		}
	}
	r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: repo.URL()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		is   Reason
		says string
	}{
		"v1": {"", ""},
		"v2": {SignatureInvalid, `signed as "v1"`},
		"v3": {SignatureInvalid, "is for the tag"},
		"v4": {SignatureMissing, "not annotated"},
	} {
		got := fetchTag(t, r, name)
		err := got.VerifyTag(keys, now)
		if reasonOf(t, err) != c.is || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %s", name, err, c.is)
		}
		if files(t, got.FS())["a"] != "old" {
			t.Errorf("%s: got %v", name, files(t, got.FS()))
		}
	}
}

// Signatures that git, gpg and ssh-keygen create are accepted.
func TestVerifySignaturesOfRealPrograms(t *testing.T) {
	s, repo := newRepo(t)
	home, work := t.TempDir(), t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "GNUPGHOME="+home, "HOME="+home, "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Logf("%s", exit.Stderr)
			}
			t.Fatalf("%s %v: %v", name, args, err)
		}
		return string(out)
	}
	sign := map[string]func() (keys []byte, config []string){
		"gpg": func() ([]byte, []string) {
			run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "e2e@example.com", "rsa3072", "sign", "0")
			t.Cleanup(func() { _ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() })
			return []byte(run("gpg", "--export", "--armor", "e2e@example.com")),
				[]string{"-c", "user.signingkey=e2e@example.com"}
		},
		"ssh-keygen": func() ([]byte, []string) {
			key := filepath.Join(home, "key")
			run("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", key)
			public, err := os.ReadFile(key + ".pub")
			if err != nil {
				t.Fatal(err)
			}
			return public, []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + key}
		},
	}
	for name, prepare := range sign {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not installed", name)
			}
			work = t.TempDir()
			public, config := prepare()
			run("git", "init", "--quiet", "--initial-branch="+name, work)
			config = append(config, "-c", "user.name=e2e", "-c", "user.email=e2e@example.com")
			run("git", append(config, "commit", "--quiet", "--allow-empty", "--gpg-sign", "-m",
				"signed\n\nwith a body")...)
			run("git", append(config, "tag", "--sign", "-m", "release", "v-"+name)...)
			run("git", "push", "--quiet", repo.Dir(), name, "v-"+name)
			keys, err := ParseKeys(map[string][]byte{"k": public})
			if err != nil {
				t.Fatal(err)
			}
			r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: repo.URL()})
			if err != nil {
				t.Fatal(err)
			}
			c := fetchTag(t, r, "v-"+name)
			if err := errors.Join(c.VerifyCommit(keys, time.Now()), c.VerifyTag(keys, time.Now())); err != nil {
				t.Error(err)
			}
			other, _ := ParseKeys(map[string][]byte{"k": newSSHSigner(t, "").public})
			if err := c.VerifyCommit(other, time.Now()); reasonOf(t, err) != SignerUnknown {
				t.Errorf("another key: %v", err)
			}
		})
	}
	_ = s
}

func TestParseKeys(t *testing.T) {
	pgp, key := string(newPGPSigner(t, now, 0).public), string(newSSHSigner(t, "").public)
	for name, c := range map[string]struct {
		value    string
		ssh, pgp int
		says     string
	}{
		"one SSH key": {key, 1, 0, ""},
		"SSH keys with a comment and a principal": {"# me\n\n" + key + "you@example.com " + key, 2, 0, ""},
		"quoted principals":                       {`"a b,c" ` + key, 1, 0, ""},
		"options": {
			`me namespaces="file,git",valid-after="20200101Z",valid-before="203001011200" ` + key, 1, 0, ""},
		"one OpenPGP key":  {pgp, 0, 1, ""},
		"two OpenPGP keys": {pgp + string(newPGPSigner(t, now, 0).public), 0, 2, ""},
		"empty":            {"", 0, 0, "there is no public key"},
		"text":             {"hunter2-hunter2", 0, 0, `line 1 of "k"`},
		"text after a key": {key + "hunter2-hunter2\n", 0, 0, `line 2 of "k"`},
		"a private key": {"-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n", 0, 0,
			"not a public key"},
		"cert-authority option":      {"* cert-authority " + key, 0, 0, "unsupported option"},
		"option without a principal": {`namespaces="git" ` + key, 1, 0, ""},
		"another namespace":          {`me namespaces="file" ` + key, 0, 0, "namespaces"},
		"invalid time":               {`me valid-before="soon" ` + key, 0, 0, "YYYYMMDD"},
		"broken OpenPGP":             {pgpPublicKey + "\n\nhunter2\n", 0, 0, "OpenPGP"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseKeys(map[string][]byte{"k": []byte(c.value)})
			if c.says != "" {
				if reasonOf(t, err) != CredentialsInvalid || !strings.Contains(err.Error(), c.says) ||
					strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want %q", err, c.says)
				}
				return
			}
			if err != nil || len(keys.ssh) != c.ssh || len(keys.pgp) != c.pgp {
				t.Errorf("got %+v %v", keys, err)
			}
		})
	}
}

func TestSSHKeyValidityPeriod(t *testing.T) {
	key := newSSHSigner(t, `me valid-after="20260601",valid-before="20260602" `)
	keys, err := ParseKeys(map[string][]byte{"k": key.public})
	if err != nil {
		t.Fatal(err)
	}
	sig, err := key.sign([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]Reason{
		now: "",
		time.Date(2026, 5, 31, 23, 59, 59, 0, time.UTC): SignerExpired,
		time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC):     "",
		time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC):     SignerExpired,
	} {
		if got := reasonOf(t, keys.verify(signedObject{[]byte("x"), sig}, at)); got != want {
			t.Errorf("at %s: %q, want %q", at, got, want)
		}
	}
}

func TestSplitCommit(t *testing.T) {
	for name, c := range map[string]struct {
		raw, payload, signature string
		is                      Reason
	}{
		"signed": {"tree 1\ngpgsig A\n B\n \n C\nx y\n\nm\n gpgsig D\n",
			"tree 1\nx y\n\nm\n gpgsig D\n", "A\nB\n\nC\n", ""},
		"other multi-line header": {"tree 1\nmergetag a\n b\n c\ngpgsig A\n B\n\nm\n",
			"tree 1\nmergetag a\n b\n c\n\nm\n", "A\nB\n", ""},
		"SHA-256 signature":        {"tree 1\ngpgsig-sha256 X\n Y\ngpgsig A\n\nm\n", "tree 1\n\nm\n", "A\n", ""},
		"signature in the message": {"tree 1\n\ngpgsig A\n", "tree 1\n\ngpgsig A\n", "", SignatureMissing},
		"similar header":           {"tree 1\ngpgsigned A\n\nm", "tree 1\ngpgsigned A\n\nm", "", SignatureMissing},
		"two signatures":           {"tree 1\ngpgsig A\ngpgsig B\n\nm", "", "", SignatureInvalid},
		"empty":                    {"", "", "", SignatureMissing},
		"truncated header":         {"tree 1\ngpgsig", "tree 1\n", "", SignatureMissing},
		"continuation line first":  {" x\ntree 1\ngpgsig A\n\nm", "tree 1\n\nm", "A\n", ""},
	} {
		s, err := splitCommit([]byte(c.raw))
		if reasonOf(t, err) != c.is || (c.is != SignatureInvalid && string(s.payload) != c.payload) ||
			string(s.signature) != c.signature {
			t.Errorf("%s: got %q %q %v", name, s.payload, s.signature, err)
		}
	}
}

func FuzzSignature(f *testing.F) {
	key, pgp := newSSHSigner(f, ""), newPGPSigner(f, now, 0)
	keys, err := ParseKeys(map[string][]byte{"a": key.public, "b": pgp.public})
	if err != nil {
		f.Fatal(err)
	}
	payload := []byte("tree 1\n\nm\n")
	for _, k := range []signer{key, pgp} {
		sig, err := k.sign(payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sig)
	}
	f.Add([]byte(sshSignature + "\nAAAA\n-----END SSH SIGNATURE-----\n"))
	f.Fuzz(func(t *testing.T, sig []byte) {
		raw := append(append([]byte("tree 2\ngpgsig "), bytes.ReplaceAll(sig, []byte("\n"), []byte("\n "))...),
			"\n\nm\n"...)
		err := recoverPanic(func() error {
			s, err := splitCommit(raw)
			if err != nil {
				return err
			}
			return keys.verify(s, now)
		})
		// No key signed a commit with tree 2.
		if err == nil {
			t.Fatalf("verified %q", sig)
		}
		if errors.Is(err, errPanic) {
			t.Fatalf("panicked: %v", err)
		}
	})
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte("ssh-ed25519 AAAA"))
	f.Add([]byte(`"a b" namespaces="git",valid-before="20260101" ssh-ed25519 AAAA`))
	f.Add([]byte(pgpPublicKey + "\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"))
	f.Fuzz(func(t *testing.T, value []byte) {
		if _, err := ParseKeys(map[string][]byte{"k": value}); errors.Is(err, errPanic) {
			t.Fatalf("panicked: %v", err)
		}
	})
}
