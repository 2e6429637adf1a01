package publish

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

// goldenComponents returns components with every case of an object that is published, modified or
// omitted.
func goldenComponents(secret bool) []Component {
	rich := object("ConfigMap", "shop", "rich", "uid", "resourceVersion", "managedFields")
	rich.Manifest = json.RawMessage(strings.Replace(string(rich.Manifest), `"name"`,
		`"annotations":{"config.kubernetes.io/local-config":"true","kept":"<yes>"},"name"`, 1))
	web := []stacks.Object{rich, object("Service", "shop", "web"), object("Namespace", "", "other"),
		withObject(object("Thing", "defaulted", "cluster"), func(o *stacks.Object) { o.Namespace = "" }),
		withObject(object("Job", "shop", "backup"),
			func(o *stacks.Object) { o.Hook = &stacks.Hook{Phase: stacks.HookPreRemove} }),
		withObject(object("Job", "shop", "migrate"),
			func(o *stacks.Object) { o.Hook = &stacks.Hook{Phase: stacks.HookPre, Weight: 1} })}
	if secret {
		web = append(web, object("Secret", "shop", "token"))
	}
	return []Component{{Name: "web", Namespace: "shop", Objects: web},
		{Name: "db", Namespace: "shop", Objects: []stacks.Object{object("ConfigMap", "db", "db")}},
		{Name: "none", Namespace: "1e3"}}
}

// TestGoldenFiles: Flux applies these files. If an update of the controller changed their bytes,
// each artifact would get a new digest.
func TestGoldenFiles(t *testing.T) {
	for name, c := range map[string]struct {
		secret bool
		mode   appsv1.PublishedSecrets
	}{
		"files-refuse.txt": {false, appsv1.SecretsRefuse}, "files-omit.txt": {true, appsv1.SecretsOmit},
		"files-include.txt": {true, appsv1.SecretsInclude},
	} {
		tree, err := Files(goldenComponents(c.secret), c.mode)
		if err != nil {
			t.Fatal(err)
		}
		files := content(t, tree)
		var out strings.Builder
		for _, path := range slices.Sorted(maps.Keys(files)) {
			out.WriteString("== " + path + "\n" + files[path])
		}
		golden.Equal(t, name, []byte(out.String()))
	}
	for _, mode := range []appsv1.PublishedSecrets{appsv1.SecretsRefuse, ""} {
		if _, err := Files(goldenComponents(true), mode); err == nil || !isSecretsError(err) {
			t.Errorf("mode %q: %v", mode, err)
		}
	}
}

func isSecretsError(err error) bool {
	_, ok := errors.AsType[*SecretsError](err)
	return ok
}

// TestGoldenExternalArtifact: Flux uses this object as a source. The digest is left out, because
// compression changes with the Go release.
func TestGoldenExternalArtifact(t *testing.T) {
	for name, secrets := range map[string]bool{
		"external-artifact.json": false, "external-artifact-secrets.json": true,
	} {
		r := newPublisherTest(t)
		r.secrets = secrets
		revision, err := r.publish("1")
		if err != nil {
			t.Fatal(err)
		}
		o := r.object()
		o.ResourceVersion = "" // of the fake API server
		a := o.Status.Artifact
		if revision != a.Revision {
			t.Errorf("published %s, but the object has %s", revision, a.Revision)
		}
		*a.Size = 1
		a.URL = strings.Replace(a.URL, strings.TrimPrefix(r.web.URL, "http://"), "storage", 1)
		o.Status.Conditions[0].Message = "a message for people"
		data, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		hex := strings.TrimPrefix(a.Digest, "sha256:")
		golden.Equal(t, name, []byte(strings.ReplaceAll(string(data), hex, "<digest>")+"\n"))
	}
}
