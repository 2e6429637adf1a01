package v1alpha1

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
)

var goldenTime = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))

// TestGoldenStored only compares JSON: it also sets fields that exclude each other in the API.
func TestGoldenStored(t *testing.T) {
	imported, exported := goldenImport(), goldenExport()
	golden.JSON(t, "importstate.json", imported)
	golden.JSON(t, "exportstate.json", exported)
	for _, part := range []any{&imported.Spec, &imported.Status, &exported.Spec, &exported.Status} {
		golden.Complete(t, part)
	}
}

// TestGoldenUnset checks that unset fields are omitted, unless the API requires them.
func TestGoldenUnset(t *testing.T) {
	golden.JSON(t, "importstate-unset.json", &ImportState{})
	golden.JSON(t, "exportstate-unset.json", &ExportState{})
	golden.JSON(t, "elements-unset.json", &struct {
		Cluster     ImportedCluster
		Credentials ImportedCredentials
		File        ExportedFile
		Selector    StateSelector
		Import      ImportStore
		Publish     ClusterPublication
		Target      ExportTarget
		Repository  ExportRepository
	}{})
}

func TestGoldenKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	types := scheme.KnownTypes(GroupVersion)
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		if strings.HasPrefix(types[kind].PkgPath(), reflect.TypeFor[ImportState]().PkgPath()) {
			fmt.Fprintf(&out, "%s, %s\n", GroupVersion, kind)
		}
	}
	golden.Equal(t, "kinds.txt", out.Bytes())
}

func goldenMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: "3b5a3a5e-8f0e-4d0a-9d0c-0a4f1f6f3c11", Generation: 7,
		CreationTimestamp: goldenTime, Finalizers: []string{appsv1.Finalizer}}
}

func goldenSchedule() appsv1.Schedule {
	return appsv1.Schedule{Interval: &metav1.Duration{Duration: 15 * time.Minute},
		RetryInterval: &metav1.Duration{Duration: 90 * time.Second},
		Timeout:       &metav1.Duration{Duration: time.Hour}, Suspend: true}
}

func goldenStatus() appsv1.CommonStatus {
	return appsv1.CommonStatus{ObservedGeneration: 7, LastHandledReconcileAt: "2026-05-01T11:00:00Z",
		ServiceAccount: &appsv1.AccountReference{Name: "deployer", UID: "5e8f"},
		WaitsFor: []appsv1.WaitReference{{Type: appsv1.WaitPruning, Kind: "KsctlInstall", Namespace: "team",
			Name: "web", Object: "ConfigMap team/a"}},
		Conditions: []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue,
			ObservedGeneration: 7,
			LastTransitionTime: goldenTime, Reason: "ReconciliationSucceeded", Message: "1 state is in sync"}}}
}

func goldenSelector() *StateSelector {
	return &StateSelector{Cloud: "aws", ClusterType: "ha", ClusterName: "prod", Region: "eu-north-1"}
}

func goldenSecret(name string) *fluxmeta.LocalObjectReference {
	return &fluxmeta.LocalObjectReference{Name: name}
}

func goldenImport() *ImportState {
	return &ImportState{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "ImportState"},
		ObjectMeta: goldenMeta("states"),
		Spec: ImportStateSpec{
			Schedule: goldenSchedule(), SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "states",
				Namespace: "sources"}, Path: "states",
			RawExportedData: []byte(`{"clusters":[]}`), Handled: true, Success: true, ReasonOfFailure: "none",
			Decryption: &appsv1.Decryption{Provider: "sops", SecretRef: *goldenSecret("age")}, AllowPlaintext: true,
			Select:      goldenSelector(),
			Credentials: SkipCredentials,
			Store: &ImportStore{StateStore: StateStore{Namespace: "ksctl"},
				Agent: &appsv1.AgentEndpoint{Address: "agent.ksctl.svc:443", SecretRef: goldenSecret("agent"),
					ServerName: "agent.example.com", Plaintext: true}},
			Conflict: OverwriteConflict, DryRun: true, Publish: &ClusterPublication{KubeConfig: true,
				ArgoCD: &ArgoCDPublication{Namespace: "argocd"}},
			DeletionPolicy: DeleteState, ServiceAccountName: "importer",
		},
		Status: ImportStateStatus{
			CommonStatus: goldenStatus(), LastAttemptedRevision: "main@sha1:5f0d",
			LastAppliedRevision: "main@sha1:5f0c",
			Clusters: []ImportedCluster{{Key: "aws.ha.prod.eu-north-1", Name: "prod", Cloud: "aws",
				Region: "eu-north-1", Type: "ha", Dialect: "v2",
				Action: StateChangedSince, Ready: true, Message: "changed in the store", Cluster: "prod",
				Written: "0123456789abcdef", Ours: true,
				Writing: "fedcba9876543210"}},
			Credentials: []ImportedCredentials{{Cloud: "aws", Action: StateSent, Ready: true,
				Message: "sent to the agent", Written: "0123456789abcdef",
				Ours: true, Writing: "fedcba9876543210"}},
			Store: "ksctl", Agent: "agent.ksctl.svc:443",
		},
	}
}

func goldenExport() *ExportState {
	return &ExportState{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "ExportState"},
		ObjectMeta: goldenMeta("backup"),
		Spec: ExportStateSpec{
			Schedule: goldenSchedule(), From: &StateStore{Namespace: "ksctl"}, Select: goldenSelector(),
			Credentials: ExportCredentials,
			Recipients:  []string{"age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq"},
			To: ExportTarget{Secret: &ExportSecret{Name: "backup"},
				Git: &ExportRepository{URL: "https://git.example.com/states", Branch: "main", Path: "prod",
					SecretRef:      goldenSecret("git"),
					ProxySecretRef: goldenSecret("proxy"), Author: CommitAuthor{Name: "ksctl",
						Email: "ksctl@example.com"}, Message: "Export states"}},
			Prune: true, DeletionPolicy: DeleteState, ServiceAccountName: "exporter",
		},
		Status: ExportStateStatus{
			CommonStatus: goldenStatus(), LastExportedRevision: "main@sha1:5f0c", Digest: "sha256:aa",
			Target:      "https://git.example.com/states@main",
			Secret:      "backup",
			Clusters:    []ExportedFile{goldenFile("aws.ha.prod.eu-north-1", ExportUpdate)},
			Credentials: []ExportedFile{goldenFile("aws", ExportByAnother)},
		},
	}
}

func goldenFile(key string, action ExportAction) ExportedFile {
	return ExportedFile{Key: key, File: key + ".yaml", Action: action, Ready: true,
		Message: "another export has the file",
		Written: "0123456789abcdef", Writing: "fedcba9876543210"}
}
