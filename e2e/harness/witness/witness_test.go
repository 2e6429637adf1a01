package witness

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

const planted = `Hunter2!correct&"horse"`

func TestASecretIsFoundInWhateverForm(t *testing.T) {
	for name, text := range map[string]string{
		"as it is":                 "the password " + planted + " is wrong",
		"quoted":                   fmt.Sprintf("the password %q is wrong", planted),
		"JSON":                     `{"message":"Hunter2!correct\u0026\"horse\""}`,
		"base64":                   "data: " + base64.StdEncoding.EncodeToString([]byte(planted)),
		"a URL":                    "https://me:" + url.QueryEscape(planted) + "@example.com",
		"a header":                 "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+planted)),
		"a header of another name": "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+planted+"\n")),
		"a registry's login":       base64.RawURLEncoding.EncodeToString([]byte("me:" + planted + " and more")),
	} {
		w := &Witness{}
		w.Secret(planted)
		w.Hear("the log", "nothing to see")
		if found := w.Found(); found != nil {
			t.Errorf("%s: found %v before it was told", name, found)
		}
		_, _ = fmt.Fprintln(w.Writer("the log"), text)
		found := w.Found()
		if len(found) != 1 || !strings.Contains(found[0], "in the log") {
			t.Errorf("%s: found %v", name, found)
		}
		if strings.Contains(fmt.Sprint(found), planted) {
			t.Errorf("%s: it is told once more", name)
		}
	}
}

func TestASecretIsFoundInObjects(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	w := &Witness{}
	w.Secret(planted)
	if err := w.Watch(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	hidden := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "hidden"}, Spec: appsv1.KsctlInstallSpec{Path: planted}}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Message: planted}
	status := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "told"},
		Status: appsv1.KsctlInstallStatus{LastAppliedRevision: planted}}
	if err := c.Create(t.Context(), hidden); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // both come by watches of their own
		found := fmt.Sprint(w.Found())
		if strings.Contains(found, "Events") && strings.Contains(found, "KsctlInstalls") {
			if strings.Contains(found, "hidden") {
				t.Errorf("what people wrote in a spec is theirs: %s", found)
			}
			return
		}
		if deadline.Err() != nil {
			t.Fatal(found)
		}
	}
}

// TestSilenceMeansSomething: that no secret was found counts when there is one, and
// when it was listened everywhere.
func TestSilenceMeansSomething(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "rm"}}
	quiet := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Message: "nothing to see"}
	planned := rm.DeepCopy()
	planned.Status.Removal = &appsv1.Removal{Kept: []appsv1.RemovalObject{{ID: "a", Message: "not " + planted}}}
	everything := func(w *Witness) {
		w.Secret(planted)
		w.Hear(Log, "x")
		w.Hear(Metrics, "x")
	}
	for name, c := range map[string]struct {
		hear    func(*Witness)
		objects []client.Object
		says    string // nothing: it passes
	}{
		"all of it":  {everything, []client.Object{quiet, rm}, ""},
		"no secret":  {func(w *Witness) { w.Hear(Log, "x"); w.Hear(Metrics, "x") }, []client.Object{quiet, rm}, "there is no secret"},
		"no log":     {func(w *Witness) { w.Secret(planted); w.Hear(Metrics, "x") }, []client.Object{quiet, rm}, "nothing was heard in the log"},
		"no metrics": {func(w *Witness) { w.Secret(planted); w.Hear(Log, "x") }, []client.Object{quiet, rm}, "nothing was heard in the metrics"},
		"no events":  {everything, []client.Object{rm}, "nothing was heard in Events"},
		"no objects": {everything, []client.Object{quiet}, "nothing was heard in any object"},
		"in a plan":  {everything, []client.Object{quiet, planned}, "a secret was told"},
		"in the log": {func(w *Witness) { everything(w); w.Hear(Log, planted) }, []client.Object{quiet, rm}, "a secret was told"},
	} {
		t.Run(name, func(t *testing.T) {
			w, api := &Witness{}, fake.NewClientBuilder().WithScheme(scheme).Build()
			if err := w.Watch(t.Context(), api); err != nil {
				t.Fatal(err)
			}
			c.hear(w)
			for _, o := range c.objects { // a watch may not have brought them when it is stopped
				if err := api.Create(t.Context(), o.DeepCopyObject().(client.Object)); err != nil {
					t.Fatal(err)
				}
			}
			err := w.Verdict(t.Context())
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
