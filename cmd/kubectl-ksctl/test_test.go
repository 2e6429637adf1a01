package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// The command waits for the result of its own request, and not for that of an earlier one.
func TestRunTests(t *testing.T) {
	condition := func(kind, status, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Message: message}
	}
	for name, tc := range map[string]struct {
		handled    string
		conditions []metav1.Condition
		says       string
		failed     bool
	}{
		"success": {"7", []metav1.Condition{condition("Tested", "True", "2 hooks have succeeded")},
			"2 hooks have succeeded", false},
		"failure": {"7", []metav1.Condition{condition("Tested", "False", "Job ns/t is Failed")}, "Job ns/t is Failed",
			true},
		"an earlier result": {"6",
			[]metav1.Condition{condition("Ready", "True", ""), condition("Tested", "True", "old")},
			"the tests have not started: see the log", true},
		"running": {"6", []metav1.Condition{condition("Tested", "Unknown", "Job ns/t is InProgress")},
			"the tests have not ended: Job ns/t is InProgress", true},
		"not ready": {"", []metav1.Condition{condition("Ready", "False", "forbidden")},
			"the tests have not started: forbidden", true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := appsv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"},
				Status: appsv1.KsctlInstallStatus{LastHandledTest: tc.handled}}
			in.Status.Conditions = tc.conditions
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(in).Build()
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			if tc.handled == "7" {
				ctx = t.Context()
			}
			message, err := runTests(ctx, c, client.ObjectKeyFromObject(in), "7")
			if err != nil && !errors.Is(err, errReported) {
				message = err.Error()
			}
			if (err != nil) != tc.failed || !strings.Contains(message, tc.says) {
				t.Errorf("got %q, %v", message, err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(in), in); err != nil ||
				in.Annotations[appsv1.TestAnnotation] != "7" {
				t.Errorf("annotations %v, %v", in.Annotations, err)
			}
		})
	}
	for name, change := range map[string]func(*appsv1.KsctlInstall){
		"for many clusters": func(in *appsv1.KsctlInstall) { in.Spec.ClusterSelector = &appsv1.ClusterSelector{} },
		"only publishes": func(in *appsv1.KsctlInstall) {
			in.Spec.Publish = &appsv1.Publish{Mode: appsv1.PublishOnly}
		},
	} {
		scheme := runtime.NewScheme()
		if err := appsv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"}}
		change(in)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(in).Build()
		if _, err := runTests(t.Context(), c, client.ObjectKeyFromObject(in), "7"); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := runTests(t.Context(), fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(),
		client.ObjectKey{Name: "i"},
		"7")
	if err == nil {
		t.Error("an install that does not exist is accepted")
	}
}
