package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestPrintStatus(t *testing.T) {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}
	in.Spec.Stack = "shop"
	in.Status.StackVersion, in.Status.LastAppliedRevision = "1.2.0", "main@sha1:5f0c"
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "Unknown", Reason: "Progressing",
		Message: "component \"app\": Deployment team/app is InProgress"}}
	in.Status.WaitsFor = []appsv1.WaitReference{{Type: appsv1.WaitReadiness, Kind: "Deployment", Namespace: "team",
		Name: "app"}}
	in.Status.Components = []appsv1.ComponentStatus{{Name: "db", Version: "16.1", Ready: true, Objects: 7},
		{Name: "app", Objects: 2, Message: "Deployment team/app is InProgress",
			Notes: "Open http://shop.example.com\nand log in."}}
	var out strings.Builder
	if err := printStatus(&out, in); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", out.String())
}
