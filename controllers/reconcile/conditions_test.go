package reconcile

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/config/argocd/lua"
)

func typesOf(st *appsv1.CommonStatus) (out []string) {
	for _, c := range st.Conditions {
		out = append(out, c.Type)
	}
	slices.Sort(out)
	return out
}

// Whatever the previous outcome was, Reconciling and Stalled exist only while they are True.
func TestSetConditionsForEveryTransition(t *testing.T) {
	for before, b := range outcomes {
		for after, a := range outcomes {
			t.Run(before+" then "+after, func(t *testing.T) {
				var st appsv1.CommonStatus
				setConditions(&st, effectsOf(b.outcome), 1, metav1.NewTime(noon))
				v := effectsOf(a.outcome)
				setConditions(&st, v, 2, metav1.NewTime(noon.Add(time.Hour)))

				want := []string{appsv1.ReadyCondition}
				if v.reconciling != "" {
					want = append(want, appsv1.ReconcilingCondition)
				}
				if v.stalled {
					want = append(want, appsv1.StalledCondition)
				}
				if got := typesOf(&st); !slices.Equal(got, want) {
					t.Errorf("conditions %v, want %v", got, want)
				}
				if st.ObservedGeneration != 2 {
					t.Errorf("observedGeneration %d", st.ObservedGeneration)
				}
				for _, c := range st.Conditions {
					if c.ObservedGeneration != 2 {
						t.Errorf("%s has observedGeneration %d", c.Type, c.ObservedGeneration)
					}
					if c.Reason == "" || c.Message != v.message {
						t.Errorf("%s has reason %q and message %q", c.Type, c.Reason, c.Message)
					}
				}
				if r := readyCondition(&st); string(r.Status) != v.ready || r.Reason != v.reason {
					t.Errorf("Ready is %s/%s", r.Status, r.Reason)
				}
			})
		}
	}
}

// An unchanged condition keeps its lastTransitionTime; otherwise each reconcile would write.
func TestUnchangedConditionsKeepTransitionTime(t *testing.T) {
	var st appsv1.CommonStatus
	v := effectsOf(Waiting{On: "a pod"})
	v.next = " (soon)"
	setConditions(&st, v, 1, metav1.NewTime(noon))
	reconciling := apimeta.FindStatusCondition(st.Conditions, appsv1.ReconcilingCondition)
	if reconciling.Message != "a pod (soon)" || QuotedMessage(st.Conditions) != "a pod" {
		t.Errorf("only Reconciling describes the next reconcile: %+v", st.Conditions)
	}
	first := st.DeepCopy()
	setConditions(&st, v, 1, metav1.NewTime(noon.Add(time.Hour)))
	if a, b := mustJSON(t, first), mustJSON(t, &st); a != b {
		t.Errorf("the same outcome changed the conditions:\n%s\n%s", a, b)
	}
	setConditions(&st, effectsOf(Done{}), 1, metav1.NewTime(noon.Add(2*time.Hour)))
	if at := readyCondition(&st).LastTransitionTime; !at.Time.Equal(noon.Add(2 * time.Hour)) {
		t.Errorf("lastTransitionTime of Ready is %s", at)
	}
}

func TestTruncateMessage(t *testing.T) {
	for name, message := range map[string]string{
		"a megabyte":              strings.Repeat("x", 1<<20),
		"a megabyte of runes":     strings.Repeat("é€😀", 1<<17),
		"a rune across the bound": strings.Repeat("x", maxMessageBytes-1) + "😀",
		"not UTF-8":               "before \xff\xfe after",
		"broken bytes":            strings.Repeat("x\xff", 1<<20),
		"cut inside a rune":       "ab\xe2\x82",
	} {
		t.Run(name, func(t *testing.T) {
			got := Truncate(message, maxMessageBytes)
			if !utf8.ValidString(got) {
				t.Error("not UTF-8: the API server rejects it")
			}
			if len(got) > maxMessageBytes+len("…") {
				t.Errorf("%d bytes", len(got))
			}
			if len(message) > 1<<16 && len(got) < maxMessageBytes-utf8.UTFMax {
				t.Errorf("only %d bytes are left", len(got))
			}
		})
	}
	for _, whole := range []string{"", "short", strings.Repeat("x", maxMessageBytes)} {
		if got := Truncate(whole, maxMessageBytes); got != whole {
			t.Errorf("%d bytes became %d", len(whole), len(got))
		}
	}
	var st appsv1.CommonStatus
	setConditions(&st, effectsOf(Stalled{Err: errors.New(strings.Repeat("€", 1<<20)), Reason: "X"}), 1,
		metav1.NewTime(noon))
	if b := mustJSON(t, &st); len(b) > 16<<10 {
		t.Errorf("a status of %d bytes", len(b))
	}
}

// kstatus, which Flux uses for its waits, has to understand the conditions.
func TestKstatusOfEveryOutcome(t *testing.T) {
	want := map[string]status.Status{}
	for name, tc := range outcomes {
		switch tc.outcome.(type) {
		case Done:
			want[name] = status.CurrentStatus
		case Stalled:
			want[name] = status.FailedStatus
		default:
			want[name] = status.InProgressStatus
		}
	}
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			in := &appsv1.KsctlInstall{TypeMeta: metav1.TypeMeta{APIVersion: appsv1.GroupVersion.String(),
				Kind: "KsctlInstall"}}
			in.Name, in.Generation = "i", 3
			setConditions(in.CommonStatus(), effectsOf(tc.outcome), 3, metav1.NewTime(noon))
			if got := kstatus(t, in); got != want[name] {
				t.Errorf("kstatus is %s, want %s", got, want[name])
			}
			in.Generation = 4
			if got := kstatus(t, in); got != status.InProgressStatus {
				t.Errorf("kstatus for an unobserved generation is %s", got)
			}
			now := metav1.NewTime(noon)
			in.DeletionTimestamp = &now
			if got := kstatus(t, in); got != status.TerminatingStatus {
				t.Errorf("kstatus of a deleted object is %s", got)
			}
		})
	}
}

// Argo CD determines the health with the script that is shipped in config/argocd.
func TestArgoCDHealthOfEveryOutcome(t *testing.T) {
	script, err := os.ReadFile("../../config/argocd/resource_customizations/apps.ksctl.com/KsctlInstall/health.lua")
	if err != nil {
		t.Fatal(err)
	}
	health := func(t *testing.T, in *appsv1.KsctlInstall) lua.Health {
		t.Helper()
		var object map[string]any
		if err := json.Unmarshal([]byte(mustJSON(t, in)), &object); err != nil {
			t.Fatal(err)
		}
		got, err := lua.RunHealth(string(script), object)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			v := effectsOf(tc.outcome)
			in := &appsv1.KsctlInstall{}
			in.Generation = 3
			setConditions(in.CommonStatus(), v, 3, metav1.NewTime(noon))
			want := lua.Health{Status: map[string]string{"True": "Healthy", "Unknown": "Progressing",
				"False": "Degraded"}[v.ready], Message: v.message}
			if got := health(t, in); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			in.Generation = 4
			if got := health(t, in); got.Status != "Progressing" || got.Message == v.message {
				t.Errorf("health for an unobserved generation is %+v", got)
			}
			in.Spec.Suspend = true
			if got := health(t, in); got.Status != "Suspended" {
				t.Errorf("health of a suspended object is %+v", got)
			}
		})
	}
	unseen := &appsv1.KsctlInstall{}
	unseen.Generation, unseen.Status.ObservedGeneration = 1, -1
	if got := health(t, unseen); got.Status != "Progressing" {
		t.Errorf("health before the first reconcile is %+v", got)
	}
}

func TestKstatusBeforeTheFirstReconcile(t *testing.T) {
	in := &appsv1.KsctlInstall{TypeMeta: metav1.TypeMeta{APIVersion: appsv1.GroupVersion.String(),
		Kind: "KsctlInstall"}}
	in.Name, in.Generation = "i", 1
	in.Status.ObservedGeneration = -1 // the default in the CRD
	if got := kstatus(t, in); got != status.InProgressStatus {
		t.Errorf("kstatus is %s", got)
	}
}

func kstatus(t *testing.T, o any) status.Status {
	t.Helper()
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON([]byte(mustJSON(t, o))); err != nil {
		t.Fatal(err)
	}
	res, err := status.Compute(&u)
	if err != nil {
		t.Fatal(err)
	}
	return res.Status
}

func mustJSON(t *testing.T, o any) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadyConditionWithoutReady(t *testing.T) {
	if c := readyCondition(&appsv1.CommonStatus{}); c.Status != "" {
		t.Errorf("%+v", c)
	}
	var st appsv1.CommonStatus
	apimeta.SetStatusCondition(&st.Conditions,
		metav1.Condition{Type: appsv1.StalledCondition, Status: metav1.ConditionTrue, Reason: "X"})
	if c := readyCondition(&st); c.Status != "" {
		t.Errorf("another condition is returned as Ready: %+v", c)
	}
}
