package exportstate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/sops"
)

const demo = "civo.ha.demo.LON1"

func doc(key, sum string) document {
	return document{key: key, file: key + suffix, sum: sum, credentials: !strings.Contains(key, ".")}
}

// line is what a status has of a file.
func line(key, written, writing string) v1alpha1.ExportedFile {
	return v1alpha1.ExportedFile{Key: key, File: key + suffix, Written: written, Writing: writing}
}

func TestDecide(t *testing.T) {
	const file = demo + suffix
	for name, c := range map[string]struct {
		before v1alpha1.ExportedFile
		have   found
		want   v1alpha1.ExportAction
		record string
	}{
		"new":                                    {want: v1alpha1.ExportCreate},
		"as it was left":                         {line(demo, "a-f", ""), found{sum: "f"}, v1alpha1.ExportInSync, "a-f"},
		"the store moved on":                     {line(demo, "b-f", ""), found{sum: "f"}, v1alpha1.ExportUpdate, "b-f"},
		"somebody changed the file":              {line(demo, "a-f", ""), found{sum: "g"}, v1alpha1.ExportRestore, "a-f"},
		"somebody removed the file":              {line(demo, "a-f", ""), found{}, v1alpha1.ExportRestore, "a-f"},
		"somebody's file":                        {have: found{sum: "g"}, want: v1alpha1.ExportTaken},
		"an export from before":                  {have: found{sum: "g", export: true}, want: v1alpha1.ExportUpdate},
		"written, and ended before it was said":  {line(demo, "b-f", "a-g"), found{sum: "g"}, v1alpha1.ExportInSync, "a-g"},
		"ended before it was written":            {line(demo, "b-f", "a-g"), found{sum: "f"}, v1alpha1.ExportUpdate, "b-f"},
		"first written, and ended before":        {line(demo, "", "a-g"), found{sum: "g"}, v1alpha1.ExportInSync, "a-g"},
		"first, and ended before it was written": {line(demo, "", "a-g"), found{}, v1alpha1.ExportCreate, ""},
	} {
		p := newPlan(wishes{documents: []document{doc(demo, "a")}}, map[string]found{file: c.have},
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

func TestWhatIsGoneFromTheStore(t *testing.T) {
	before := v1alpha1.ExportStateStatus{Clusters: []v1alpha1.ExportedFile{line(demo, "a-f", "")}, Credentials: []v1alpha1.ExportedFile{line("civo", "c-d", "")}}
	there := map[string]found{demo + suffix: {sum: "f"}, "civo" + suffix: {sum: "d"}}
	for name, c := range map[string]struct {
		want   wishes
		have   map[string]found
		prune  bool
		remove []string
		rows   string
	}{
		"a backup keeps it":            {wishes{clusters: true, credentials: true}, there, false, nil, "LeftStore LeftStore"},
		"it may go":                    {wishes{clusters: true, credentials: true}, there, true, []string{demo + suffix, "civo" + suffix}, "Remove Remove"},
		"no credentials can be seen":   {wishes{clusters: true}, there, true, []string{demo + suffix}, "Remove LeftStore"},
		"somebody changed it":          {wishes{clusters: true, credentials: true}, map[string]found{demo + suffix: {sum: "x"}}, true, nil, "LeftStore"},
		"somebody removed it":          {wishes{clusters: true, credentials: true}, nil, true, nil, ""},
		"it is there, and unreadable":  {wishes{clusters: true, refused: []v1alpha1.ExportedFile{refused(demo, errors.New("not JSON"))}}, there, true, nil, "Invalid LeftStore"},
		"it is there, and still comes": {wishes{clusters: true, documents: []document{doc(demo, "a"), doc("civo", "c")}}, there, true, nil, "InSync InSync"},
	} {
		p := newPlan(c.want, c.have, before, c.prune)
		var rows []string
		for _, row := range slices.Concat(p.clusters, p.credentials) {
			rows = append(rows, string(row.Action))
		}
		if got := strings.Join(rows, " "); got != c.rows || !slices.Equal(p.remove, c.remove) {
			t.Errorf("%s: got %s, removing %v", name, got, p.remove)
		}
		p.written()
		if slices.ContainsFunc(p.clusters, func(r v1alpha1.ExportedFile) bool { return r.Action == v1alpha1.ExportRemove }) {
			t.Errorf("%s: what is gone has a line: %+v", name, p.clusters)
		}
	}
}

func TestAnnouncedAndWritten(t *testing.T) {
	want := wishes{clusters: true, credentials: true, documents: []document{doc(demo, "a"), doc("civo", "c")}}
	p := newPlan(want, nil, v1alpha1.ExportStateStatus{}, false)
	if got := p.did(); got != "wrote 1 state and the credentials of 1 cloud" {
		t.Error(got)
	}
	p.announce(map[string]record{demo + suffix: {"a", "f"}, "civo" + suffix: {"c", "d"}})
	announced := v1alpha1.ExportStateStatus{Clusters: slices.Clone(p.clusters), Credentials: slices.Clone(p.credentials)}
	have := map[string]found{demo + suffix: {sum: "f"}, "civo" + suffix: {sum: "d"}}
	if again := newPlan(want, have, announced, false); len(again.write) != 0 {
		t.Errorf("a process that ended after it wrote writes again: %+v", again.write)
	}
	p.written()
	status := v1alpha1.ExportStateStatus{Clusters: p.clusters, Credentials: p.credentials}
	again := newPlan(want, have, status, false)
	if !slices.Equal(again.clusters, p.clusters) || !slices.Equal(again.credentials, p.credentials) || len(again.write) != 0 {
		t.Errorf("got %+v, want %+v", again, p)
	}
	if out, ok := again.outcome("Secret x", 0, "").(reconcile.Done); !ok || out.Message != "1 state and the credentials of 1 cloud in Secret x" {
		t.Errorf("got %+v", out)
	}
}

func TestRefusedInThePlan(t *testing.T) {
	p := newPlan(wishes{documents: []document{doc(demo, "a")}}, nil, v1alpha1.ExportStateStatus{Clusters: []v1alpha1.ExportedFile{line(demo, "z-f", "")}}, false)
	p.refuse(demo+suffix, PlaintextReason, "a secret stays readable")
	out, ok := p.outcome("Secret x", 0, "").(reconcile.Stalled)
	if !ok || out.Reason != PlaintextReason || len(p.write)+len(p.restored) != 0 || p.clusters[0].Written != "z-f" {
		t.Errorf("got %+v of %+v", out, p)
	}
}

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		reason   string
		terminal bool
	}{
		"somebody's Secret": {fail(SecretTakenReason, "x"), SecretTakenReason, true},
		"no Secret":         {gitsecret.Missing("a", "b", "c"), gitsecret.NotFoundReason, true},
		"a bad recipient":   {fmt.Errorf("x: %w", &sops.Error{Reason: sops.RecipientInvalid}), string(sops.RecipientInvalid), true},
		"no program":        {&sops.Error{Reason: sops.Unavailable}, string(sops.Unavailable), false},
		"refused":           {&git.Error{Reason: git.PushRefused}, string(git.PushRefused), false},
		"no name":           {&git.Error{Reason: git.BranchInvalid}, string(git.BranchInvalid), true},
		"a request":         {errors.New("x"), "", false},
	} {
		reason, terminal := "", false
		switch out := failed(c.err).(type) {
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

func state1(name, words string) []byte {
	return fmt.Appendf(nil, `{"cluster_name":%q,"cluster_type":"ha","region":"LON1","cloud_provider":"civo","words":%q}`, name, words)
}

func TestGather(t *testing.T) {
	s := &Steps{SecretKey: []byte("key")}
	have := statestore.Held{HasStates: true, HasCredentials: true, States: map[string][]byte{
		demo: state1("demo", "a"), "civo.ha.other.LON1": state1("demo", "a"), "civo.ha.third.LON1": []byte("hunter2"), "x": state1("demo", "a"), "aws.ha.a-b.r": state1("a-b", "x"),
	}, Credentials: map[string][]byte{"civo": []byte(`{"cloud_provider":"civo","civo":{"token":"hunter2"}}`), "aws": []byte(`{"cloud_provider":"azure"}`)}}
	spec := &v1alpha1.ExportStateSpec{Recipients: []string{"b", "a"}, Credentials: v1alpha1.ExportCredentials}
	want, err := s.gather(spec, have)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, d := range want.documents {
		files = append(files, d.file)
	}
	if !slices.Equal(files, []string{demo + ".json", "credentials.civo.json"}) || len(want.refused) != 4 || len(want.refusedCredentials) != 1 {
		t.Errorf("got %v and %+v, %+v", files, want.refused, want.refusedCredentials)
	}
	if strings.Contains(fmt.Sprint(want.refused), "hunter2") {
		t.Errorf("tells a value: %v", want.refused)
	}
	first := want.documents[0].sum
	spec.Recipients = []string{"a", "b"}
	if again, _ := s.gather(spec, have); again.documents[0].sum != first {
		t.Error("the order of recipients means nothing")
	}
	spec.Recipients = []string{"a"}
	if again, _ := s.gather(spec, have); again.documents[0].sum == first {
		t.Error("others can read it, and it is not encrypted anew")
	}
	spec.Select = &v1alpha1.StateSelector{Cloud: "aws"}
	if again, _ := s.gather(spec, have); len(again.documents) != 0 || len(again.refused) != 1 {
		t.Errorf("got %+v", again)
	}
}

func TestLookInto(t *testing.T) {
	sealed := `{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":"civo","sops":{"mac":"x","lastmodified":"y"}}`
	fsys := fstest.MapFS{"states/" + demo + ".json": {Data: []byte(sealed)}, "states/civo.ha.b.LON1.json": {Data: []byte(sealed)},
		"states/civo.ha.c.LON1.json/x": {Data: []byte("x")}, "file": {Data: []byte("x")}}
	keys := map[string]string{}
	for _, key := range []string{demo, "civo.ha.b.LON1", "civo.ha.c.LON1", "civo.ha.d.LON1"} {
		keys[key+suffix] = key
	}
	got, err := lookInto(fsys, "states", keys, []byte("key"))
	sum := statestore.Sum([]byte("key"), []byte(sealed))
	want := map[string]found{demo + suffix: {sum, true}, "civo.ha.b.LON1.json": {sum, false}, "civo.ha.c.LON1.json": {notAFile, false}, "civo.ha.d.LON1.json": {}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if !covers(got, keys) || covers(got, map[string]string{"x": "x"}) {
		t.Error("covers")
	}
	if got, err := lookInto(fsys, "nowhere", keys, nil); err != nil || len(got) != 4 || got[demo+suffix].sum != "" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := lookInto(fsys, "file", keys, nil); err == nil {
		t.Error("a file is no folder")
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
	if !isExport([]byte(`{"cloud_provider":"civo",`+meta), "civo") || isExport([]byte(`{"cloud_provider":"aws",`+meta), "civo") {
		t.Error("credentials")
	}
}
