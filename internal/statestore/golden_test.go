package statestore

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/golden"
)

// Statuses contain these hashes. If they changed, all states would seem modified by another client
// after an update.
func TestGoldenHashes(t *testing.T) {
	var lines strings.Builder
	for _, c := range []struct{ name, key, data string }{
		{"least", "", ""}, {"an object", "key", `{"b":[1.50,"<&>",null],"a":{"n":1e3}}`},
		{"the same object", "key", `{ "a": {"n": 1000}, "b": [1.5, "<&>", null] }`},
		{"another key", "other", `{"b":[1.50,"<&>",null],"a":{"n":1e3}}`}, {"not JSON", "key", "{not JSON"},
	} {
		_, _ = fmt.Fprintf(&lines, "%s: hash %s, sum %s\n", c.name, HashDocument([]byte(c.key), []byte(c.data)),
			HashBytes([]byte(c.key), []byte(c.data)))
	}
	golden.Equal(t, "hashes.txt", []byte(lines.String()))
}

// ksctl reads these objects, so their form must not change.
func TestGoldenStore(t *testing.T) {
	r := newStoreTest(t)
	states := map[string][]byte{"aws.selfmanaged.prod.eu-north-1": []byte(`{"cluster_name":"prod"}`),
		"civo.ha.demo.LON1": []byte(`{"cluster_name":"demo"}`)}
	credentials := map[string][]byte{"aws": []byte(`{"cloud_provider":"aws"}`)}
	if err := r.read().Write(t.Context(), states, credentials); err != nil {
		t.Fatal(err)
	}
	for _, k := range []kind{statesKind, credentialsKind} {
		u, err := r.api.Resource(k.resource).Namespace(team).Get(t.Context(), k.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		golden.JSON(t, strings.ToLower(k.kind)+".json", &u.Object)
	}
	for _, at := range []*v1alpha1.StateStore{nil, {}} {
		if got := NamespaceOf(at); got != "ksctl" {
			t.Errorf("got namespace %s", got)
		}
	}
}
