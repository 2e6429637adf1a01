package exportstate

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// Exported files decrypt and parse to the entries of the ksctl store, for documents of every
// dialect.
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
		have := statestore.Contents{HasStates: true, HasCredentials: true, States: map[string][]byte{},
			Credentials: map[string][]byte{}}
		for _, c := range file.Clusters {
			have.States[c.ID.Key()] = c.JSON()
		}
		for _, c := range file.Credentials {
			have.Credentials[c.Cloud] = c.JSON()
		}
		s := &Steps{SecretKey: []byte("key"), Encrypt: codec.Encrypt}
		spec := &v1alpha1.ExportStateSpec{Recipients: []string{mine.Recipient().String()},
			Credentials: v1alpha1.ExportCredentials}
		want, err := s.readDesired(spec, have)
		if err != nil || slices.ContainsFunc(want.documents, func(d document) bool {
			return d.action != ""
		}) || len(want.documents) != len(file.Clusters)+len(file.Credentials) {
			t.Fatalf("%s: got %+v, %v", name, want, err)
		}
		p := newPlan(want, nil, v1alpha1.ExportStateStatus{}, false)
		sealed, err := s.encrypt(t.Context(), spec, &p, &exportCache{})
		if err != nil || len(sealed) != len(want.documents) {
			t.Fatalf("%s: %d files, %v", name, len(sealed), err)
		}
		for _, d := range want.documents {
			check(t, d, sealed[d.file], mine.String())
		}
	}
}

// check decrypts and parses a file as an ImportState does, and compares it with its document.
func check(t *testing.T, d document, sealed []byte, key string) {
	t.Helper()
	if readable, err := state.SecretPointers(sealed); err != nil || len(readable) > 0 {
		t.Errorf("%s: plaintext secrets at %v, %v", d.file, readable, err)
	}
	if !isExport(sealed, d.key) {
		t.Errorf("%s: the file is not recognized as an export:\n%s", d.file, sealed)
	}
	plain, err := codec.Decrypt(t.Context(),
		sops.Request{Name: d.file, Data: sealed, Format: sops.JSON, Secret: map[string][]byte{"a.agekey": []byte(key)}})
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
		t.Errorf("%s: the decrypted content differs", d.file)
	}
}

// Files of an earlier release, which encrypted only known secrets, stay unchanged until the state
// changes: the same content causes no commit.
func TestFilesOfEarlierReleaseAreKept(t *testing.T) {
	r := newExportTest(t)
	r.store(map[string]string{"demo": "one"})
	r.done("1 state")
	before, err := codec.Encrypt(t.Context(), sops.EncryptRequest{Data: stateDoc("demo", "one"), Format: sops.JSON,
		Recipients: r.obj.Spec.Recipients, EncryptedRegex: state.EncryptedRegex})
	if err != nil {
		t.Fatal(err)
	}
	const file = "states/" + demo + fileSuffix
	r.commit(map[string]string{file: string(before)})
	row := &r.obj.Status.Clusters[0]
	row.Written = record{parseRecord(row.Written).documentHash,
		statestore.HashBytes(r.steps.SecretKey, before)}.String()
	r.restart()
	r.done("1 state")
	r.commits(2)
	if got := r.decrypted([]byte(r.git("cat-file", "blob", "main:"+file))); !state.Equal([]byte(got),
		stateDoc("demo", "one")) {
		t.Errorf("got %s", got)
	}
	r.store(map[string]string{"demo": "two"})
	r.done("1 state")
	r.commits(3)
	got := r.git("cat-file", "blob", "main:"+file)
	if strings.Contains(got, `"two"`) || !strings.Contains(got, `"demo"`) ||
		!strings.Contains(got, "unencrypted_regex") {
		t.Errorf("got %s", got)
	}
}

// An encrypted document is not encrypted again for a retry.
func TestDocumentsAreEncryptedOnce(t *testing.T) {
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := &Steps{SecretKey: []byte("key"), Encrypt: codec.Encrypt}
	spec := &v1alpha1.ExportStateSpec{Recipients: []string{mine.Recipient().String()}}
	d := document{key: demo, file: demo + fileSuffix, hash: "a", data: stateDoc("demo", "a")}
	p, m := exportPlan{write: []document{d}}, &exportCache{}
	first, err := s.encrypt(t.Context(), spec, &p, m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.encrypt(t.Context(), spec, &p, m)
	if err != nil || !bytes.Equal(first[d.file], again[d.file]) {
		t.Errorf("encrypted twice: %v", err)
	}
	spec.Recipients = []string{"age1x"}
	p.write[0].hash = "b"
	if _, err := s.encrypt(t.Context(), spec, &p, m); err == nil {
		t.Error("no error for an invalid recipient")
	}
}
