package install

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// valuesTest is an install, a cache with ConfigMaps and Secrets, and an API server that counts the
// reads with the service account.
type valuesTest struct {
	*Steps
	t      *testing.T
	o      *owner
	cache  client.Client
	server *dynamicfake.FakeDynamicClient
	reads  int
	denied error
}

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}
}

func configMap(name, version, values string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta(name, version), Data: map[string]string{"values.yaml": values}}
}

func secret(name, version, values string) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta(name, version),
		Data: map[string][]byte{"values.yaml": []byte(values)}}
}

// newValuesTest returns a valuesTest with objects both on the server and in the cache, in the same
// versions.
func newValuesTest(t *testing.T, objects ...client.Object) *valuesTest {
	t.Helper()
	var typed []runtime.Object
	var cached []client.Object
	for _, o := range objects {
		typed = append(typed, o)
		c := o.DeepCopyObject().(client.Object)
		cached = append(cached, c)
	}
	r := &valuesTest{t: t, server: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme, typed...)}
	r.cache = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(cached...).Build()
	r.server.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.reads++
		return r.denied != nil, nil, r.denied
	})
	r.Steps = &Steps{Client: r.cache}
	r.o = &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: &appsv1.KsctlInstall{ObjectMeta: meta("i",
		"1")}}}
	return r
}

func valuesRef(kind, name, key string) appsv1.ValuesReference {
	return appsv1.ValuesReference{Kind: kind, Name: name, Key: key, Component: "c"}
}

func optional(ref appsv1.ValuesReference) appsv1.ValuesReference {
	ref.Optional = true
	return ref
}

func (r *valuesTest) values(refs ...appsv1.ValuesReference) (string, error) {
	r.o.req.Object.Spec.ValuesFrom = refs
	in, _, _, err := r.inputs(r.t.Context(), r.o, r.server)
	var out []string
	for _, v := range in.Values {
		out = append(out, fmt.Sprintf("%s=%s", v.Source, v.Data))
		if v.Public != strings.HasPrefix(v.Source, "ConfigMap") || v.Component != "c" {
			r.t.Errorf("%+v", v)
		}
	}
	return strings.Join(out, "; "), err
}

func isValuesNotFound(err error) bool {
	step, ok := errors.AsType[*reconcile.StepError](err)
	return ok && step.Reason == appsv1.ValuesNotFoundReason
}

func TestValues(t *testing.T) {
	two := configMap("two", "1", "a: 1")
	two.Data["other.yaml"] = "b: 2"
	elsewhere := configMap("elsewhere", "1", "x")
	elsewhere.Namespace = "another"
	for name, tc := range map[string]struct {
		refs []appsv1.ValuesReference
		want string
		err  string
	}{
		"no references": {nil, "", ""},
		"default key": {[]appsv1.ValuesReference{valuesRef("ConfigMap", "two", "")},
			"ConfigMap two, key values.yaml=a: 1", ""},
		"named key": {[]appsv1.ValuesReference{valuesRef("ConfigMap", "two", "other.yaml")},
			"ConfigMap two, key other.yaml=b: 2", ""},
		"decoded Secret": {[]appsv1.ValuesReference{valuesRef("Secret", "s", "")},
			"Secret s, key values.yaml=p: 1", ""},
		"several in order": {[]appsv1.ValuesReference{valuesRef("Secret", "s", ""),
			valuesRef("ConfigMap", "two", "")}, "Secret s, key values.yaml=p: 1; ConfigMap two, key values.yaml=a: 1",
			""},
		"missing object": {[]appsv1.ValuesReference{valuesRef("ConfigMap", "three", "")}, "",
			`valuesFrom ConfigMap "three" for component "c": the object does not exist`},
		"missing key": {[]appsv1.ValuesReference{valuesRef("ConfigMap", "two", "x")}, "",
			`valuesFrom ConfigMap "two" for component "c": key "x" does not exist`},
		"another kind": {[]appsv1.ValuesReference{valuesRef("Secret", "two", "")}, "",
			`valuesFrom Secret "two" for component "c": the object does not exist`},
		"another namespace": {[]appsv1.ValuesReference{valuesRef("ConfigMap", "elsewhere", "")}, "",
			`valuesFrom ConfigMap "elsewhere" for component "c": the object does not exist`},
		"first of two errors": {[]appsv1.ValuesReference{valuesRef("ConfigMap", "two", "x"),
			valuesRef("ConfigMap", "three", "")}, "",
			`valuesFrom ConfigMap "two" for component "c": key "x" does not exist`},
		"optional": {[]appsv1.ValuesReference{optional(valuesRef("ConfigMap", "three", "")),
			optional(valuesRef("ConfigMap", "two", "x")), valuesRef("Secret", "s", "")},
			"Secret s, key values.yaml=p: 1", ""},
		// An optional reference does not make another reference to the same object optional.
		"optional and required": {[]appsv1.ValuesReference{optional(valuesRef("ConfigMap", "three", "")),
			valuesRef("ConfigMap", "three", "")}, "",
			`valuesFrom ConfigMap "three" for component "c": the object does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newValuesTest(t, two.DeepCopy(), secret("s", "1", "p: 1"), elsewhere.DeepCopy())
			got, err := r.values(tc.refs...)
			if tc.err == "" {
				if err != nil || got != tc.want {
					t.Errorf("got %q, %v, want %q", got, err, tc.want)
				}
				return
			}
			if !isValuesNotFound(err) || err.Error() != tc.err {
				t.Errorf("got %v, want %s", err, tc.err)
			}
		})
	}
}

// The data is read once per version and service account, for all references to the object.
func TestValuesAreReadOncePerVersionAndAccount(t *testing.T) {
	r := newValuesTest(t, configMap("a", "1", "v: 1"))
	read := func(n int, why string) {
		t.Helper()
		r.reads = 0
		if _, err := r.values(valuesRef("ConfigMap", "a", ""), valuesRef("ConfigMap", "a", "values.yaml"),
			optional(valuesRef("ConfigMap", "gone", ""))); err != nil {
			t.Fatal(err)
		}
		if r.reads != n {
			t.Errorf("%s: read %d times, want %d", why, r.reads, n)
		}
	}
	read(1, "first reconcile")
	read(0, "nothing changed")
	r.o.req.Object.Spec.ServiceAccountName = "another"
	read(1, "another account may have other permissions")
	read(0, "nothing changed")

	cm := &corev1.ConfigMap{}
	if err := r.cache.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "a"}, cm); err != nil {
		t.Fatal(err)
	}
	cm.Labels = map[string]string{"a": "b"}
	if err := r.cache.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	read(1, "the cache has another version")
}

func TestForbiddenValuesAreNotMissing(t *testing.T) {
	r := newValuesTest(t, configMap("a", "1", "v: 1"))
	r.denied = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no"))
	for _, ref := range []appsv1.ValuesReference{valuesRef("ConfigMap", "a", ""),
		optional(valuesRef("ConfigMap", "a", ""))} {
		_, err := r.values(ref)
		if !apierrors.IsForbidden(err) || isValuesNotFound(err) || !strings.Contains(err.Error(), `ConfigMap "a"`) {
			t.Errorf("optional=%t: got %v, want a Forbidden error with no reason", ref.Optional, err)
		}
	}
	r.denied = apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "a")
	if _, err := r.values(valuesRef("ConfigMap", "a", "")); !isValuesNotFound(err) {
		t.Errorf("deleted, but still in the cache: %v", err)
	}
	r.denied = nil
	if got, err := r.values(valuesRef("ConfigMap", "a", "")); err != nil || got == "" {
		t.Errorf("%q, %v: an error must not be cached", got, err)
	}
}

// With --watch-configs-label-selector the cache has only some of the ConfigMaps and Secrets.
func TestUnwatchedValuesAreReadInEachReconcile(t *testing.T) {
	r := newValuesTest(t, configMap("a", "1", "v: 1"))
	r.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()
	if _, err := r.values(valuesRef("ConfigMap", "a", "")); err == nil || r.reads > 0 {
		t.Errorf("an object that is missing from a complete cache does not exist: %v, %d reads", err, r.reads)
	}
	r.ConfigsSelected = true
	for i := range 2 {
		if got, err := r.values(valuesRef("ConfigMap", "a", ""),
			optional(valuesRef("ConfigMap", "gone", ""))); err != nil || got != "ConfigMap a, key values.yaml=v: 1" {
			t.Errorf("%q, %v", got, err)
		}
		if want := 2 * (i + 1); r.reads != want {
			t.Errorf("read %d times, want %d: changes cause no events", r.reads, want)
		}
	}
}

func TestInvalidBase64ErrorHasNoData(t *testing.T) {
	r := newValuesTest(t, secret("s", "1", "p"))
	bad := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"ns"},"data":{"values.yaml":"hunter2!"}}`
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(bad)); err != nil {
		t.Fatal(err)
	}
	r.server.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, u, nil
	})
	_, err := r.values(valuesRef("Secret", "s", ""))
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), `Secret "s"`) {
		t.Errorf("got %v", err)
	}
}

func TestMissingValuesAreRetried(t *testing.T) {
	_, err := newValuesTest(t).values(valuesRef("Secret", "s", ""))
	out, ok := renderOutcome(err, "r1", time.Time{}).(reconcile.Retry)
	if !ok || out.Reason != appsv1.ValuesNotFoundReason || out.Revision != "r1" {
		t.Errorf("%+v", out)
	}
}

func TestParametersFrom(t *testing.T) {
	r := newValuesTest(t, configMap("site", "1", "a: 1"), secret("db", "1", "b: 2"))
	read := func(refs ...appsv1.ParametersReference) (string, error) {
		r.o.req.Object.Spec.ParametersFrom = refs
		in, _, _, err := r.inputs(t.Context(), r.o, r.server)
		var out []string
		for _, p := range in.ParametersFrom {
			out = append(out, fmt.Sprintf("%s %v %s%s", p.Source, p.Secret, p.Data["values.yaml"], p.TargetPath))
		}
		return strings.Join(out, "; "), err
	}
	all := []appsv1.ParametersReference{{Kind: "ConfigMap", Name: "site"},
		{Kind: "Secret", Name: "db", Key: "values.yaml", TargetPath: " x"},
		{Kind: "Secret", Name: "db", Key: "absent", Optional: true},
		{Kind: "Secret", Name: "absent", Optional: true}}
	const want = "ConfigMap site false a: 1; Secret db true b: 2 x"
	for range 2 {
		if got, err := read(all...); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if r.reads != 2 {
		t.Errorf("%d reads of two objects that did not change", r.reads)
	}
	for _, tt := range []struct {
		ref  appsv1.ParametersReference
		want string
	}{
		{appsv1.ParametersReference{Kind: "Secret", Name: "absent"}, `Secret "absent": the object does not exist`},
		{appsv1.ParametersReference{Kind: "Secret", Name: "db", Key: "k"}, `Secret "db": key "k" does not exist`},
		{appsv1.ParametersReference{Kind: "Secret", Name: "db", Key: "k", TargetPath: "db.password"},
			`Secret "db": parameter "db.password": key "k" does not exist`},
	} {
		if _, err := read(tt.ref); !isValuesNotFound(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	if got := referencedConfigs(&appsv1.KsctlInstall{ObjectMeta: meta("i", "1"),
		Spec: appsv1.KsctlInstallSpec{ParametersFrom: all[:2]}}); len(got) != 2 {
		t.Errorf("watched: %v", got)
	}
}
