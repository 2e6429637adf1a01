package main

import (
	"bytes"
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/client/clientset/versioned/fake"
)

// install returns a KsctlInstall of generation 2 with an observed generation and a Ready condition.
func install(name string, observed int64, ready metav1.ConditionStatus) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 2}}
	in.Status.ObservedGeneration = observed
	in.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: ready, Reason: "Reason",
		Message: "message"}}
	return in
}

func TestWatchEndsWhenTheInstallIsReady(t *testing.T) {
	var out bytes.Buffer
	if err := watch(t.Context(), &out, fake.NewSimpleClientset(install("web", 2, metav1.ConditionTrue)),
		"shop/web"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "shop/web Ready=True Reason: message\n" {
		t.Errorf("got %q", got)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watch(ctx, &bytes.Buffer{}, fake.NewSimpleClientset(), "shop/web"); err != nil {
		t.Fatal(err)
	}
}

func TestReadyIsOfTheGenerationThatIsWanted(t *testing.T) {
	for _, c := range []struct {
		in   *appsv1.KsctlInstall
		want bool
	}{
		{install("web", 2, metav1.ConditionTrue), true},
		{install("web", 1, metav1.ConditionTrue), false},
		{install("web", 2, metav1.ConditionFalse), false},
		{&appsv1.KsctlInstall{}, false},
	} {
		if got := ready(c.in); got != c.want {
			t.Errorf("%s at generation %d: got %t", describe(c.in), c.in.Status.ObservedGeneration, got)
		}
	}
}
