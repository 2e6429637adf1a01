package scriptsapi

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secret returns the Secret of script hello.
func (f *fixture) secret() *corev1.Secret {
	f.Helper()
	out := &corev1.Secret{}
	if err := f.client.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: "acme.hello"}, out); err != nil {
		f.Fatal(err)
	}
	return out
}

func (f *fixture) uploadBindings(fields string) reply {
	f.Helper()
	return f.upload("hello", `{"main_module": "index.js", `+fields+`}`, part{"index.js", typeModule, script1})
}

func (f *fixture) expectKeys(want string) {
	f.Helper()
	var got []string
	for _, b := range parseSecret(f.secret()).sorted() {
		got = append(got, b.Type[:5]+" "+b.Name+"="+b.Text)
	}
	if s := strings.Join(got, ", "); s != want {
		f.Errorf("got bindings %s, want %s", s, want)
	}
}

func TestBindingsAreKeysOfSecret(t *testing.T) {
	f := start(t)
	const both = `"bindings": [{"type": "plain_text", "name": "GREETING", "text": "hi"},
		{"type": "secret_text", "name": "KEY", "text": "s1"}]`
	if r := f.uploadBindings(both); !r.Success {
		t.Fatal(r.Body)
	}
	f.expectKeys("plain GREETING=hi, secre KEY=s1")
	if got := f.newWrites(); !slices.Equal(got, []string{"create acme.hello", "create acme.hello",
		"update acme.hello"}) {
		t.Errorf("got writes %v, want the Secret, the WorkerDeployment, and its ownership", got)
	}
	first := f.template("hello")
	if first.secretName() != "acme.hello" {
		t.Errorf("got template %+v", first)
	}
	if owners := f.secret().OwnerReferences; len(owners) != 1 || owners[0].Kind != "WorkerDeployment" ||
		owners[0].UID != "uid-of-acme.hello" {
		t.Errorf("got owners %v", owners)
	}
	f.uploadBindings(both)
	if got := f.newWrites(); len(got) > 0 {
		t.Errorf("the same upload again: got writes %v", got)
	}
	// Another text changes the Secret and an annotation, so that nothing is built.
	f.uploadBindings(strings.Replace(both, `"hi"`, `"hello"`, 1))
	f.expectKeys("plain GREETING=hello, secre KEY=s1")
	if got := f.template("hello"); got.etag() != first.etag() || !reflect.DeepEqual(got, first) {
		t.Errorf("got template %+v, want %+v", got, first)
	}
	// Without bindings, secrets stay: clients have no texts of secrets.
	f.mustUpload("hello", script1)
	f.expectKeys("secre KEY=s1")
	if got := f.template("hello"); got.SecretRef == nil || got.EnvPrefix == nil || *got.EnvPrefix != "" {
		t.Errorf("the reference to the Secret is gone, or its keys have a prefix: %+v", got)
	}
}

func TestKeepAndInheritBindings(t *testing.T) {
	f := start(t)
	f.uploadBindings(`"bindings": [{"type": "plain_text", "name": "A", "text": "1"},
		{"type": "plain_text", "name": "B", "text": "2"}, {"type": "secret_text", "name": "S", "text": "3"}]`)
	f.uploadBindings(`"bindings": [{"type": "plain_text", "name": "B", "text": "4"}], "keep_bindings": ["plain_text"]`)
	f.expectKeys("plain A=1, plain B=4, secre S=3")
	f.uploadBindings(`"bindings": [{"type": "inherit", "name": "C", "old_name": "A"}, {"type": "inherit", "name": "S"}]`)
	f.expectKeys("plain C=1, secre S=3")
	f.expect(f.uploadBindings(`"bindings": [{"type": "inherit", "name": "X"}]`), 400, codeBindingNotFound, `inherits "X"`)
	f.expect(f.uploadBindings(`"bindings": [{"type": "plain_text", "name": "S", "text": "x"}]`), 400, codeInvalid,
		"binding S is a secret: delete the secret first")
	f.expectKeys("plain C=1, secre S=3")
}

func TestSecrets(t *testing.T) {
	f := start(t)
	const path = "/workers/scripts/hello/secrets"
	const key = `{"name": "KEY", "text": "s1", "type": "secret_text"}`
	f.expect(f.call(http.MethodPut, path, key), 404, codeScriptNotFound, "has no script hello")
	f.mustUpload("hello", script1)
	if r := f.call(http.MethodPut, path, key); !r.Success || strings.Contains(r.Body, "s1") {
		t.Fatal(r.Body)
	}
	f.expectKeys("secre KEY=s1")
	if got := f.template("hello"); got.secretName() != "acme.hello" || got.WorkerNumber != 8080 {
		t.Errorf("got template %+v", got)
	}
	f.newWrites()
	f.call(http.MethodPut, path, strings.Replace(key, "s1", "s2", 1))
	if got := f.newWrites(); !slices.Equal(got, []string{"update acme.hello"}) {
		t.Errorf("got writes %v, want that of the Secret alone", got)
	}
	for _, p := range []string{path, path + "/KEY"} {
		if r := f.call(http.MethodGet, p, ""); !strings.Contains(r.Body, `{"name":"KEY","type":"secret_text"}`) {
			t.Errorf("%s: got %s", p, r.Body)
		}
	}
	f.expect(f.call(http.MethodPut, path, `{"name": "KEY", "type": "secret_key"}`), 400, codeInvalid, "only secret_text")
	f.expect(f.call(http.MethodPut, path, `{`), 400, codeInvalid, "no JSON object")
	f.expect(f.call(http.MethodDelete, path+"/OTHER", ""), 404, codeBindingNotFound, `no secret "OTHER"`)
	if r := f.call(http.MethodDelete, path+"/KEY", ""); !r.Success {
		t.Error(r.Body)
	}
	f.expectKeys("")
}

// A Secret that is left from a former script of the name has no effect on the next one.
func TestFormerSecretIsReplaced(t *testing.T) {
	f := start(t)
	f.uploadBindings(`"bindings": [{"type": "secret_text", "name": "OLD", "text": "1"}]`)
	f.call(http.MethodDelete, "/workers/scripts/hello", "")
	f.mustUpload("hello", script1)
	if r := f.call(http.MethodGet, "/workers/scripts/hello/secrets", ""); strings.Contains(r.Body, "OLD") {
		t.Errorf("got %s", r.Body)
	}
	f.call(http.MethodPut, "/workers/scripts/hello/secrets", `{"name": "NEW", "text": "2", "type": "secret_text"}`)
	f.expectKeys("secre NEW=2")
}

func TestSecretsOfOthersAreNotChanged(t *testing.T) {
	f := start(t)
	if err := f.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "acme.hello"}, Data: map[string][]byte{"A": []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	f.expect(f.uploadBindings(`"bindings": [{"type": "plain_text", "name": "A", "text": "2"}]`), 409, codeInvalid,
		"Secret team/acme.hello was not made by this API")
	if got := string(f.secret().Data["A"]); got != "1" {
		t.Errorf("got %s", got)
	}
}

func TestDisabledSecrets(t *testing.T) {
	f := start(t, func(o *Options) { o.DisableSecrets = true })
	f.expect(f.uploadBindings(`"bindings": [{"type": "plain_text", "name": "A", "text": "2"}]`), 400, codeInvalid,
		"bindings are turned off")
	f.mustUpload("hello", script1)
	f.expect(f.call(http.MethodPut, "/workers/scripts/hello/secrets", `{"name": "A", "type": "secret_text"}`), 400,
		codeInvalid, "bindings are turned off")
}
