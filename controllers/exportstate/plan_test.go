package exportstate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/sops"
)

const demo = "civo.ha.demo.LON1"

func doc(key, sum string) document {
	return document{key: key, file: key + fileSuffix, hash: sum, credentials: !strings.Contains(key, ".")}
}

// statusRow returns the row of a file in a status.
func statusRow(key, written, writing string) v1alpha1.ExportedFile {
	return v1alpha1.ExportedFile{Key: key, File: key + fileSuffix, Written: written, Writing: writing}
}

func TestDecide(t *testing.T) {
	const file = demo + fileSuffix
	for name, c := range map[string]struct {
		before v1alpha1.ExportedFile
		have   targetFile
		want   v1alpha1.ExportAction
		record string
	}{
		"new": {want: v1alpha1.ExportCreate},
		"unchanged": {statusRow(demo, "a-f", ""), targetFile{hash: "f"}, v1alpha1.ExportInSync,
			"a-f"},
		"store changed": {statusRow(demo, "b-f", ""), targetFile{hash: "f"}, v1alpha1.ExportUpdate,
			"b-f"},
		"file changed": {statusRow(demo, "a-f", ""), targetFile{hash: "g"},
			v1alpha1.ExportRestore, "a-f"},
		"file removed":          {statusRow(demo, "a-f", ""), targetFile{}, v1alpha1.ExportRestore, "a-f"},
		"file of another owner": {have: targetFile{hash: "g"}, want: v1alpha1.ExportTaken},
		"export with lost status": {have: targetFile{hash: "g", isExport: true},
			want: v1alpha1.ExportUpdate},
		"written, but not confirmed": {statusRow(demo, "b-f", "a-g"), targetFile{hash: "g"},
			v1alpha1.ExportInSync, "a-g"},
		"announced, but not written": {statusRow(demo, "b-f", "a-g"), targetFile{hash: "f"},
			v1alpha1.ExportUpdate, "b-f"},
		"first write not confirmed": {statusRow(demo, "", "a-g"), targetFile{hash: "g"}, v1alpha1.ExportInSync,
			"a-g"},
		"first write announced, not written": {statusRow(demo, "", "a-g"), targetFile{}, v1alpha1.ExportCreate, ""},
	} {
		p := newPlan(desired{documents: []document{doc(demo, "a")}}, map[string]targetFile{file: c.have},
			v1alpha1.ExportStateStatus{Clusters: []v1alpha1.ExportedFile{c.before}}, false)
		if len(p.clusters) != 1 || p.clusters[0].Action != c.want || p.clusters[0].Written != c.record {
			t.Errorf("%s: got %+v, want %s", name, p.clusters, c.want)
			continue
		}
		if n := len(p.write); (n == 1) != writes(c.want) || p.clusters[0].Ready != (c.want == v1alpha1.ExportInSync) {
			t.Errorf("%s: %d to write, %+v", name, n, p.clusters[0])
		}
	}
}

func TestEntriesRemovedFromTheStore(t *testing.T) {
	before := v1alpha1.ExportStateStatus{Clusters: []v1alpha1.ExportedFile{statusRow(demo, "a-f", "")},
		Credentials: []v1alpha1.ExportedFile{statusRow("civo", "c-d", "")}}
	there := map[string]targetFile{demo + fileSuffix: {hash: "f"}, "civo" + fileSuffix: {hash: "d"}}
	for name, c := range map[string]struct {
		want   desired
		have   map[string]targetFile
		prune  bool
		remove []string
		rows   string
	}{
		"without prune": {desired{hasClusters: true, hasCredentials: true}, there, false, nil,
			"LeftStore LeftStore"},
		"with prune": {desired{hasClusters: true, hasCredentials: true}, there, true,
			[]string{demo + fileSuffix, "civo" + fileSuffix}, "Remove Remove"},
		"credentials unknown": {desired{hasClusters: true}, there, true, []string{demo + fileSuffix},
			"Remove LeftStore"},
		"file changed": {desired{hasClusters: true, hasCredentials: true},
			map[string]targetFile{demo + fileSuffix: {hash: "x"}}, true, nil, "LeftStore"},
		"file removed": {desired{hasClusters: true, hasCredentials: true}, nil, true, nil, ""},
		"invalid in the store": {desired{hasClusters: true,
			documents: []document{invalidDocument(demo, errors.New("not JSON"))}}, there, true, nil,
			"Invalid LeftStore"},
		"still in the store": {desired{hasClusters: true, documents: []document{doc(demo, "a"), doc("civo", "c")}},
			there, true, nil, "InSync InSync"},
	} {
		p := newPlan(c.want, c.have, before, c.prune)
		var rows []string
		for _, row := range slices.Concat(p.clusters, p.credentials) {
			rows = append(rows, string(row.Action))
		}
		if got := strings.Join(rows, " "); got != c.rows || !slices.Equal(p.remove, c.remove) {
			t.Errorf("%s: got %s, removed %v", name, got, p.remove)
		}
		p.markWritten()
		if slices.ContainsFunc(p.clusters, func(r v1alpha1.ExportedFile) bool {
			return r.Action == v1alpha1.ExportRemove
		}) {
			t.Errorf("%s: a removed file still has a row: %+v", name, p.clusters)
		}
	}
}

func TestPlanRecognizesAnnouncedAndWrittenFiles(t *testing.T) {
	want := desired{hasClusters: true, hasCredentials: true, documents: []document{doc(demo, "a"), doc("civo", "c")}}
	p := newPlan(want, nil, v1alpha1.ExportStateStatus{}, false)
	if got := p.summary(); got != "wrote 1 state and the credentials of 1 cloud" {
		t.Error(got)
	}
	p.announce(map[string]record{demo + fileSuffix: {"a", "f"}, "civo" + fileSuffix: {"c", "d"}})
	announced := v1alpha1.ExportStateStatus{Clusters: slices.Clone(p.clusters),
		Credentials: slices.Clone(p.credentials)}
	have := map[string]targetFile{demo + fileSuffix: {hash: "f"}, "civo" + fileSuffix: {hash: "d"}}
	if again := newPlan(want, have, announced, false); len(again.write) != 0 {
		t.Errorf("an unconfirmed write is repeated: %+v", again.write)
	}
	p.markWritten()
	status := v1alpha1.ExportStateStatus{Clusters: p.clusters, Credentials: p.credentials}
	again := newPlan(want, have, status, false)
	if !slices.Equal(again.clusters, p.clusters) || !slices.Equal(again.credentials, p.credentials) ||
		len(again.write) != 0 {
		t.Errorf("got %+v, want %+v", again, p)
	}
	if out, ok := again.outcome("Secret x", 0, "").(reconcile.Done); !ok ||
		out.Message != "1 state and the credentials of 1 cloud in Secret x" {
		t.Errorf("got %+v", out)
	}
}

func TestInvalidDocumentIsNotWritten(t *testing.T) {
	p := newPlan(desired{documents: []document{doc(demo, "a")}}, nil,
		v1alpha1.ExportStateStatus{Clusters: []v1alpha1.ExportedFile{statusRow(demo, "z-f", "")}}, false)
	p.markInvalid(demo+fileSuffix, v1alpha1.PlaintextSecretsReason, "a secret stays readable")
	out, ok := p.outcome("Secret x", 0, "").(reconcile.Stalled)
	if !ok || out.Reason != v1alpha1.PlaintextSecretsReason || len(p.write)+len(p.restored) != 0 ||
		p.clusters[0].Written != "z-f" {
		t.Errorf("got %+v of %+v", out, p)
	}
}

func TestFailureOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		reason   string
		terminal bool
	}{
		"other Secret": {reconcile.NewTerminalError(v1alpha1.SecretConflictReason, "x"),
			v1alpha1.SecretConflictReason, true},
		"missing Secret": {gitsecret.NewNotFound("a", "b", "c"), appsv1.SecretNotFoundReason, true},
		"invalid recipient": {fmt.Errorf("x: %w", &sops.Error{Reason: sops.RecipientInvalid}),
			string(sops.RecipientInvalid), true},
		"no SOPS worker": {&sops.Error{Reason: sops.Unavailable}, string(sops.Unavailable), false},
		"push rejected":  {&git.Error{Reason: git.PushRefused}, string(git.PushRefused), false},
		"invalid branch": {&git.Error{Reason: git.BranchInvalid}, string(git.BranchInvalid), true},
		"other error":    {errors.New("x"), "", false},
	} {
		reason, terminal := "", false
		switch out := failureOutcome(c.err).(type) {
		case reconcile.Stalled:
			reason, terminal = out.Reason, true
		case reconcile.Retry:
			reason = out.Reason
		}
		if reason != c.reason || terminal != c.terminal {
			t.Errorf("%s: got %q, %v", name, reason, terminal)
		}
	}
}

func stateDoc(name, words string) []byte {
	return fmt.Appendf(nil,
		`{"cluster_name":%q,"cluster_type":"ha","region":"LON1","cloud_provider":"civo","words":%q}`, name, words)
}

func TestReadDesired(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	have := statestore.Contents{HasStates: true, HasCredentials: true, States: map[string][]byte{
		demo: stateDoc("demo", "a"), "civo.ha.other.LON1": stateDoc("demo", "a"),
		"civo.ha.third.LON1": []byte("hunter2"), "x": stateDoc("demo", "a"), "aws.ha.a-b.r": stateDoc("a-b", "x"),
	}, Credentials: map[string][]byte{"civo": []byte(`{"cloud_provider":"civo","civo":{"token":"hunter2"}}`),
		"aws": []byte(`{"cloud_provider":"azure"}`)}}
	spec := &v1alpha1.ExportStateSpec{Recipients: []string{"b", "a"}, Credentials: v1alpha1.ExportCredentials}
	want, err := s.readDesired(spec, have)
	if err != nil {
		t.Fatal(err)
	}
	var files, invalid []string
	for _, d := range want.documents {
		if d.action == "" {
			files = append(files, d.file)
		} else {
			invalid = append(invalid, d.file+": "+d.message)
		}
	}
	if !slices.Equal(files, []string{demo + ".json", "credentials.civo.json"}) || len(invalid) != 5 {
		t.Errorf("got %v and %v", files, invalid)
	}
	if strings.Contains(fmt.Sprint(invalid), "hunter2") {
		t.Errorf("a message contains a value: %v", invalid)
	}
	// The hash of the document of demo.
	hashOf := func(want desired) string {
		i := slices.IndexFunc(want.documents, func(d document) bool { return d.key == demo })
		return want.documents[i].hash
	}
	first := hashOf(want)
	spec.Recipients = []string{"a", "b"}
	if again, _ := s.readDesired(spec, have); hashOf(again) != first {
		t.Error("the order of recipients changes the hash")
	}
	spec.Recipients = []string{"a"}
	if again, _ := s.readDesired(spec, have); hashOf(again) == first {
		t.Error("a change of recipients does not change the hash")
	}
	spec.Select = &v1alpha1.StateSelector{Cloud: "aws"}
	if again, _ := s.readDesired(spec, have); len(again.documents) != 1 ||
		again.documents[0].action != v1alpha1.ExportInvalid {
		t.Errorf("got %+v", again)
	}
}

func TestReadFolder(t *testing.T) {
	sealed := `{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":"civo","sops":{"mac":"x","lastmodified":"y"}}`
	fsys := fstest.MapFS{"states/" + demo + ".json": {Data: []byte(sealed)},
		"states/civo.ha.b.LON1.json":   {Data: []byte(sealed)},
		"states/civo.ha.c.LON1.json/x": {Data: []byte("x")}, "file": {Data: []byte("x")}}
	keys := map[string]string{}
	for _, key := range []string{demo, "civo.ha.b.LON1", "civo.ha.c.LON1", "civo.ha.d.LON1"} {
		keys[key+fileSuffix] = key
	}
	got, err := readFolder(fsys, "states", keys, []byte("key"))
	sum := statestore.HashBytes([]byte("key"), []byte(sealed))
	want := map[string]targetFile{demo + fileSuffix: {sum, true}, "civo.ha.b.LON1.json": {sum, false},
		"civo.ha.c.LON1.json": {notAFile, false}, "civo.ha.d.LON1.json": {}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if !covers(got, keys) || covers(got, map[string]string{"x": "x"}) {
		t.Error("covers")
	}
	if got, err := readFolder(fsys, "nowhere", keys, nil); err != nil || len(got) != 4 ||
		got[demo+fileSuffix].hash != "" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := readFolder(fsys, "file", keys, nil); err == nil {
		t.Error("no error for a file as folder")
	}
}

func TestIsExport(t *testing.T) {
	const meta = `"sops":{"mac":"x","lastmodified":"y"}}`
	for data, want := range map[string]bool{
		`{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":"civo",` + meta:   true,
		`{"cluster_name":"ENC[x]","cluster_type":"ha","region":"LON1","cloud_provider":"civo",` + meta: true,
		`{"cluster_name":"demo2","cluster_type":"ha","region":"LON1","cloud_provider":"civo",` + meta:  false,
		`{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":"civo"}`:          false,
		`{"cloud_provider":"civo",` + meta: false,
		`hello`:                            false,
	} {
		if isExport([]byte(data), demo) != want {
			t.Errorf("%s: want %v", data, want)
		}
	}
	if !isExport([]byte(`{"cloud_provider":"civo",`+meta), "civo") ||
		isExport([]byte(`{"cloud_provider":"aws",`+meta), "civo") {
		t.Error("credentials")
	}
}
