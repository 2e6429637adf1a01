package leakscan

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

const testSecret = `Hunter2!correct&"horse"`

func TestLeaksFindsEncodedSecrets(t *testing.T) {
	for name, text := range map[string]string{
		"verbatim": "the password " + testSecret + " is wrong",
		"quoted":   fmt.Sprintf("the password %q is wrong", testSecret),
		"JSON":     `{"message":"Hunter2!correct\u0026\"horse\""}`,
		"base64":   "data: " + base64.StdEncoding.EncodeToString([]byte(testSecret)),
		"a URL":    "https://me:" + url.QueryEscape(testSecret) + "@example.com",
		"a header": "Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte("user:"+testSecret)),
		"a header for another user": "Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte("root:"+testSecret+"\n")),
		"a registry's login": base64.RawURLEncoding.EncodeToString([]byte("me:" + testSecret + " and more")),
	} {
		w := &Scanner{}
		w.AddSecret(testSecret)
		w.Record("the log", "nothing to see")
		if found := w.Leaks(); found != nil {
			t.Errorf("%s: found %v before the secret was written", name, found)
		}
		_, _ = fmt.Fprintln(w, text)
		found := w.Leaks()
		if len(found) != 1 || !strings.Contains(found[0], "in the log") {
			t.Errorf("%s: found %v", name, found)
		}
		if strings.Contains(fmt.Sprint(found), testSecret) {
			t.Errorf("%s: the result repeats the secret", name)
		}
	}
}

func TestWatchRecordsObjectsWithoutSpec(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	w := &Scanner{}
	w.AddSecret(testSecret)
	if err := w.Watch(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	hidden := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "hidden"},
		Spec: appsv1.KsctlInstallSpec{Path: testSecret}}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Message: testSecret}
	status := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
		Status: appsv1.KsctlInstallStatus{LastAppliedRevision: testSecret}}
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
	for { // the event and the install arrive on different watches
		found := fmt.Sprint(w.Leaks())
		if strings.Contains(found, "Events") && strings.Contains(found, "KsctlInstalls") {
			if strings.Contains(found, "hidden") {
				t.Errorf("a secret in a spec was reported: %s", found)
			}
			return
		}
		if deadline.Err() != nil {
			t.Fatal(found)
		}
	}
}

// TestCheckRequiresSecretsAndOutput: a scan without findings passes only if a secret was added and
// every output was recorded.
func TestCheckRequiresSecretsAndOutput(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "rm"}}
	quiet := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Message: "nothing to see"}
	planned := rm.DeepCopy()
	planned.Status.Removal = &appsv1.Removal{Kept: []appsv1.RemovalObject{{ID: "a", Message: "not " + testSecret}}}
	recordAll := func(w *Scanner) {
		w.AddSecret(testSecret)
		w.Record(Log, "x")
		w.Record(Metrics, "x")
	}
	for name, c := range map[string]struct {
		hear    func(*Scanner)
		objects []client.Object
		says    string // expected error; "" means none
	}{
		"complete": {recordAll, []client.Object{quiet, rm}, ""},
		"no secret": {func(w *Scanner) {
			w.Record(Log, "x")
			w.Record(Metrics, "x")
		}, []client.Object{quiet, rm}, "no secret value was added"},
		"no log": {func(w *Scanner) {
			w.AddSecret(testSecret)
			w.Record(Metrics, "x")
		}, []client.Object{quiet, rm}, "nothing was recorded from the log"},
		"no metrics": {func(w *Scanner) {
			w.AddSecret(testSecret)
			w.Record(Log, "x")
		}, []client.Object{quiet, rm}, "nothing was recorded from the metrics"},
		"no events":  {recordAll, []client.Object{rm}, "nothing was recorded from Events"},
		"no objects": {recordAll, []client.Object{quiet}, "nothing was recorded from any object"},
		"in a plan":  {recordAll, []client.Object{quiet, planned}, "secret value leaked"},
		"in the log": {func(w *Scanner) {
			recordAll(w)
			w.Record(Log, testSecret)
		}, []client.Object{quiet, rm}, "secret value leaked"},
	} {
		t.Run(name, func(t *testing.T) {
			w, api := &Scanner{}, fake.NewClientBuilder().WithScheme(scheme).Build()
			if err := w.Watch(t.Context(), api); err != nil {
				t.Fatal(err)
			}
			c.hear(w)
			for _, o := range c.objects { // the watches may stop before they deliver these
				if err := api.Create(t.Context(), o.DeepCopyObject().(client.Object)); err != nil {
					t.Fatal(err)
				}
			}
			err := w.Check(t.Context(), true)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			// A run of some specs needs no output, and still finds what leaked.
			if err := w.Check(t.Context(), false); (err != nil) != (c.says == "secret value leaked") {
				t.Errorf("of some specs: %v", err)
			}
		})
	}
}
