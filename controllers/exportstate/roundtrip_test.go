package exportstate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// What is exported reads back as what ksctl's store had, for documents of every dialect.
func TestRoundTrip(t *testing.T) {
	files, err := filepath.Glob("../../stacks/state/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := state.Parse(name, data)
		if err != nil {
			t.Fatal(err)
		}
		have := statestore.Held{HasStates: true, HasCredentials: true, States: map[string][]byte{}, Credentials: map[string][]byte{}}
		for _, c := range file.Clusters {
			have.States[c.ID.Key()] = c.JSON()
		}
		for _, c := range file.Credentials {
			have.Credentials[c.Cloud] = c.JSON()
		}
		s := &Steps{SecretKey: []byte("key"), Encrypt: codec.Encrypter(codec.Limits{})}
		spec := &v1alpha1.ExportStateSpec{Recipients: []string{mine.Recipient().String()}, Credentials: v1alpha1.ExportCredentials}
		want, err := s.gather(spec, have)
		if err != nil || len(want.refused)+len(want.refusedCredentials) != 0 || len(want.documents) != len(file.Clusters)+len(file.Credentials) {
			t.Fatalf("%s: got %+v, %v", name, want, err)
		}
		p := newPlan(want, nil, v1alpha1.ExportStateStatus{}, false)
		sealed, err := s.seal(t.Context(), spec, &p, &memo{})
		if err != nil || len(sealed) != len(want.documents) {
			t.Fatalf("%s: %d files, %v", name, len(sealed), err)
		}
		for _, d := range want.documents {
			check(t, d, sealed[d.file], mine.String())
		}
	}
}

// check reads a file as ImportState does.
func check(t *testing.T, d document, sealed []byte, key string) {
	t.Helper()
	if readable, err := state.Secrets(sealed); err != nil || len(readable) > 0 {
		t.Errorf("%s: readable at %v, %v", d.file, readable, err)
	}
	if !isExport(sealed, d.key) {
		t.Errorf("%s: it is not known for an export:\n%s", d.file, sealed)
	}
	plain, err := codec.Decrypter(codec.Options{})(t.Context(), sops.Request{Name: d.file, Data: sealed, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(key)}})
	if err != nil {
		t.Fatal(err)
	}
	file, err := state.Parse(d.file, plain)
	if err != nil {
		t.Fatal(err)
	}
	var back []byte
	if d.credentials {
		back = file.Credentials[0].JSON()
	} else {
		back = file.Clusters[0].JSON()
	}
	if !state.Equal(back, d.data) {
		t.Errorf("%s: it reads back as something else", d.file)
	}
}

// What an earlier release wrote, which encrypted what it knew to be secret and left the rest, stays as
// it is until the state changes: the same content is no commit.
func TestWrittenByAnEarlierRelease(t *testing.T) {
	r := newRig(t)
	r.store(map[string]string{"demo": "one"})
	r.done("1 state")
	before, err := codec.Encrypt(state1("demo", "one"), sops.JSON, r.obj.Spec.Recipients, codec.EncryptOptions{EncryptedRegex: state.EncryptedRegex})
	if err != nil {
		t.Fatal(err)
	}
	const file = "states/" + demo + suffix
	r.commit(map[string]string{file: string(before)})
	row := &r.obj.Status.Clusters[0]
	row.Written = record{readRecord(row.Written).document, statestore.Sum(r.steps.SecretKey, before)}.String()
	r.restart()
	r.done("1 state")
	r.commits(2)
	if got := r.opened([]byte(r.git("cat-file", "blob", "main:"+file))); !state.Equal([]byte(got), state1("demo", "one")) {
		t.Errorf("got %s", got)
	}
	r.store(map[string]string{"demo": "two"})
	r.done("1 state")
	r.commits(3)
	got := r.git("cat-file", "blob", "main:"+file)
	if strings.Contains(got, `"two"`) || !strings.Contains(got, `"demo"`) || !strings.Contains(got, "unencrypted_regex") {
		t.Errorf("got %s", got)
	}
}

// What is sealed once is not sealed again for another try, and is nothing that can be read.
func TestSealedOnce(t *testing.T) {
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := &Steps{SecretKey: []byte("key"), Encrypt: codec.Encrypter(codec.Limits{})}
	spec := &v1alpha1.ExportStateSpec{Recipients: []string{mine.Recipient().String()}}
	d := document{key: demo, file: demo + suffix, sum: "a", data: state1("demo", "a")}
	p, m := plan{write: []document{d}}, &memo{}
	first, err := s.seal(t.Context(), spec, &p, m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.seal(t.Context(), spec, &p, m)
	if err != nil || !bytes.Equal(first[d.file], again[d.file]) {
		t.Errorf("sealed twice: %v", err)
	}
	spec.Recipients = []string{"age1x"}
	p.write[0].sum = "b"
	if _, err := s.seal(t.Context(), spec, &p, m); err == nil {
		t.Error("no error of a recipient that is none")
	}
}
