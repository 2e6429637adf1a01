package v1

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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/ksctl/gitops/internal/golden"
)

var goldenTime = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))

// TestGoldenStored only compares JSON: it also sets fields that exclude each other in the API.
func TestGoldenStored(t *testing.T) {
	install, remove, source, inventory := goldenInstall(), goldenRemove(), goldenSource(), goldenInventory()
	golden.JSON(t, "ksctlinstall.json", install)
	golden.JSON(t, "ksctlremove.json", remove)
	golden.JSON(t, "ksctlsource.json", source)
	golden.JSON(t, "ksctlinventory.json", inventory)
	for _, part := range []any{&install.Spec, &install.Status, &remove.Spec, &remove.Status, &source.Spec,
		&source.Status,
		&inventory.Owner, &inventory.Entries} {
		golden.Complete(t, part)
	}
}

// TestGoldenUnset checks that unset fields are omitted, unless the API requires them.
func TestGoldenUnset(t *testing.T) {
	golden.JSON(t, "ksctlinstall-unset.json", &KsctlInstall{})
	golden.JSON(t, "ksctlremove-unset.json", &KsctlRemove{})
	golden.JSON(t, "ksctlsource-unset.json", &KsctlSource{})
	golden.JSON(t, "ksctlinventory-unset.json", &KsctlInventory{})
	golden.JSON(t, "elements-unset.json", &struct {
		Component  ComponentStatus
		Removed    InstallRemoval
		Entry      InventoryEntry
		Inventory  Inventory
		Removal    Removal
		Step       RemovalStep
		Object     RemovalObject
		Cluster    InstalledCluster
		Artifact   TakenArtifact
		Values     ValuesReference
		Choice     ComponentChoice
		Keep       KeepRule
		Ignore     IgnoreRule
		Dependency Dependency
		Charts     ChartRepository
		Git        GitSource
		OCI        OCISource
		Selector   ClusterSelector
		Agent      AgentEndpoint
		Guard      Guard
		Publish    Publish
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
		if strings.HasPrefix(types[kind].PkgPath(), reflect.TypeFor[KsctlInstall]().PkgPath()) {
			fmt.Fprintf(&out, "%s, %s\n", GroupVersion, kind)
		}
	}
	golden.Equal(t, "kinds.txt", out.Bytes())
}

func goldenMeta(name string, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: "3b5a3a5e-8f0e-4d0a-9d0c-0a4f1f6f3c11", Generation: 7,
		CreationTimestamp: goldenTime, Labels: map[string]string{"team": "web"}, Annotations: annotations,
		Finalizers: []string{Finalizer}}
}

func goldenSchedule() Schedule {
	return Schedule{Interval: &metav1.Duration{Duration: 15 * time.Minute},
		RetryInterval: &metav1.Duration{Duration: 90 * time.Second},
		Timeout:       &metav1.Duration{Duration: time.Hour}, Suspend: true}
}

func goldenTarget() TargetCluster {
	return TargetCluster{ClusterRef: &ClusterReference{Name: "prod", Namespace: "clusters"},
		KubeConfig: &KubeConfigReference{SecretRef: SecretKeyReference{Name: "prod-kubeconfig", Key: "config"}}}
}

func goldenStatus() CommonStatus {
	return CommonStatus{ObservedGeneration: 7, LastHandledReconcileAt: "2026-05-01T11:00:00Z",
		ServiceAccount: &AccountReference{Name: "deployer", UID: "5e8f"},
		WaitsFor: []WaitReference{{Type: WaitPruning, Kind: "KsctlInstall", Namespace: "team", Name: "web",
			Object: "ConfigMap team/a"}},
		Conditions: []metav1.Condition{{Type: ReadyCondition, Status: metav1.ConditionTrue, ObservedGeneration: 7,
			LastTransitionTime: goldenTime,
			Reason:             "ReconciliationSucceeded", Message: "Applied revision main@sha1:5f0c"}}}
}

func goldenSecret(name string) *fluxmeta.LocalObjectReference {
	return &fluxmeta.LocalObjectReference{Name: name}
}

func goldenJSON(raw string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(raw)} }

func goldenChoice() ComponentChoice {
	return ComponentChoice{Name: "app", Version: "1.2.3", Digest: "sha256:aa", Enabled: ptr.To(false),
		CommonMetadata: goldenMetadata(), NamePrefix: "my-", NameSuffix: "-2",
		KustomizeComponents: []string{"../component"},
		ReleaseName:         "web", CRDs: CRDsCreateOnly, Hooks: HooksSkip, SkipSchemaValidation: ptr.To(true),
		Override: goldenJSON(`{"replicas":3}`)}
}

func goldenMetadata() *CommonMetadata {
	return &CommonMetadata{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}}
}

func goldenCharts() []ChartRepository {
	return []ChartRepository{{Repository: "oci://registry.example.com/charts", SecretRef: goldenSecret("registry"),
		CertSecretRef: goldenSecret("registry-ca"), PassCredentials: true, Insecure: true,
		Verify: &ChartVerification{Provider: ChartCosign, SecretRef: goldenSecret("keys"),
			TrustedRootSecretRef: goldenSecret("root"),
			MatchOIDCIdentity:    []OIDCIdentityMatch{{Issuer: "^https://issuer$", Subject: "^subject$"}}}}}
}

func goldenDecryption() *Decryption {
	return &Decryption{Provider: "sops", SecretRef: *goldenSecret("age")}
}

func goldenEntry() InventoryEntry {
	return InventoryEntry{ID: "team_web_apps_Deployment", Version: "v1", UID: "9d8c1e54-0b4e-4b39-8f1b-6f0ab0a5b001",
		Component: "app", Wave: 2,
		State: EntryAdopted, Leaving: true, RetainedAt: ptr.To(metav1.NewMicroTime(goldenTime.Time)), PreRemove: 1,
		Hash: "qvQ0sQ1uYzQ0d2Jh", Baseline: "mX1l0k9aT3J0c2Fkr"}
}

func goldenInventoryStatus() *Inventory {
	return &Inventory{Entries: []InventoryEntry{goldenEntry()}, Chunks: []string{"web-0123456789abcdef-0"},
		Removed: []string{"team_old__ConfigMap"},
		Settled: 12, SettledIDs: "f00d"}
}

func goldenObject() RemovalObject {
	return RemovalObject{ID: "team_data__PersistentVolumeClaim", Reason: "Kept",
		Message: "spec.keep has PersistentVolumeClaim"}
}

func goldenInstall() *KsctlInstall {
	chart := ChartStatus{Repository: "oci://registry.example.com/charts", Name: "app", Version: "1.2.3",
		Digest: "sha256:bb"}
	return &KsctlInstall{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "KsctlInstall"},
		ObjectMeta: goldenMeta("web", map[string]string{RequestedAtAnnotation: "2026-05-01T11:00:00Z",
			ApproveAnnotation: "0123456789abcdef",
			ReleaseAnnotation: "sha256:cc", TurnAnnotation: "7 ahead"}),
		Spec: KsctlInstallSpec{
			Schedule: goldenSchedule(), TargetCluster: goldenTarget(),
			ClusterSelector: &ClusterSelector{
				LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "prod"},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region",
						Operator: metav1.LabelSelectorOpIn, Values: []string{"eu"}}}},
				MaxConcurrent: ptr.To[int32](2), OnFailure: FailureContinue},
			SourceRef: SourceRef{Kind: "KsctlSource", Name: "stacks", Namespace: "sources"}, Path: "deploy",
			Stack: "web", StackVersion: "1.0.0",
			Parameters: goldenJSON(`{"host":"web.example.com","ports":[80,443]}`),
			Components: []ComponentChoice{goldenChoice()}, CommonMetadata: goldenMetadata(), Strict: true,
			ValuesFrom: []ValuesReference{{Kind: ClusterValues, Name: "values",
				Set: []ClusterValue{{Path: "ingress.host", Expr: "metadata.name"}},
				Key: "values.yaml", TargetPath: "auth.password", Component: "app", Optional: true}},
			ParametersFrom: []ParametersReference{{Kind: "Secret", Name: "db", Key: "password",
				TargetPath: "database.password", Optional: true}},
			Charts: goldenCharts(), Generate: GenerateKeep, Decryption: goldenDecryption(),
			ServiceAccountName: "deployer",
			TargetNamespace:    "web",
			DependsOn: []Dependency{{APIVersion: "apps/v1", Kind: "Deployment", Name: "db", Namespace: "data",
				ReadyExpr: "status.readyReplicas > 0"}},
			TakeOver: &TakeOver{Name: "old"},
			Drift: &Drift{Mode: DriftWarn, Ignore: []IgnoreRule{{Target: &IgnoreTarget{Group: "apps",
				Kind: "Deployment", Namespace: "team", Name: "web"},
				Paths: []string{"/spec/replicas"}}}},
			Adopt: AdoptUnowned, Prune: ptr.To(false),
			Guard: &Guard{MaxDeletes: ptr.To[int32](0), MaxDeletePercent: ptr.To[int32](10),
				ProtectKinds: []string{"PersistentVolumeClaim"}},
			DeletionPolicy: DeletionOrphan, Publish: &Publish{Mode: PublishOnly, Secrets: SecretsOmit}, Force: true,
		},
		Status: KsctlInstallStatus{
			CommonStatus: goldenStatus(), LastAttemptedRevision: "main@sha1:5f0d",
			LastAppliedRevision: "main@sha1:5f0c", LastHandledTest: "1795856713",
			Artifact: &TakenArtifact{Revision: "main@sha1:5f0c", Digest: "sha256:cc",
				URL: "http://source/stacks.tar.gz", Since: &goldenTime, WasReady: true},
			StackVersion: "1.0.0",
			Components: []ComponentStatus{{Name: "app", Version: "1.2.3", DependsOn: []string{"db"}, Ready: true,
				Objects: 4, Message: "waits for a pod", Notes: "Open the shop.",
				Release: &ComponentRelease{Revision: 2, Digest: "keyed hash", Complete: true},
				Chart:   &chart, ChartDependencies: []ChartStatus{chart}}},
			Inventory: goldenInventoryStatus(), Cluster: "clusters.prod",
			ClusterUID: "0b8a7c5d-2d52-4c62-9f6b-8a1f0ad0c002",
			Clusters: []InstalledCluster{{Name: "prod", Install: "web-prod", State: ClusterUpdating, Since: &goldenTime,
				Revision: "main@sha1:5f0c",
				Message:  "waits for a pod"}},
			Removals: []InstallRemoval{{Name: "remove-app", UID: "5c8e1d7b-64f0-4c8e-8a9f-1f0ad0c0b003", Generation: 2,
				Components: []string{"app"},
				Digest:     "0123456789abcdef", Kept: []RemovalObject{goldenObject()}}},
			SharedDefinitions: []string{"widgets.example.com"},
			Warnings:          []string{"apiVersion policy/v1beta1 is deprecated"},
		},
	}
}

func goldenRemove() *KsctlRemove {
	return &KsctlRemove{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "KsctlRemove"},
		ObjectMeta: goldenMeta("remove-app",
			map[string]string{AbandonAnnotation: "3b5a3a5e-8f0e-4d0a-9d0c-0a4f1f6f3c11"}),
		Spec: KsctlRemoveSpec{
			Schedule: goldenSchedule(), TargetCluster: goldenTarget(), InstallRef: &InstallRef{Name: "web"},
			SourceRef: &SourceRef{Kind: "GitRepository", Name: "stacks", Namespace: "sources"}, Path: "deploy",
			Stack: "web", StackVersion: "1.0.0",
			Parameters: goldenJSON(`{"host":"web.example.com"}`), Choices: []ComponentChoice{goldenChoice()},
			Charts:     goldenCharts(),
			Decryption: goldenDecryption(), TargetNamespace: "web", ServiceAccountName: "deployer",
			Components: []string{"app"},
			Keep: []KeepRule{{Group: ptr.To(""), Kind: "PersistentVolumeClaim", Namespace: "team",
				Name: "data"}},
			CustomResources: CustomResourcesDelete, ApprovedDigest: "01234567-0123456789abcdef",
		},
		Status: KsctlRemoveStatus{
			CommonStatus: goldenStatus(), LastAttemptedRevision: "main@sha1:5f0c",
			Removal: &Removal{Generation: 7, Digest: "01234567-0123456789abcdef", MadeAt: goldenTime, Count: 3,
				Order: []RemovalStep{{Wave: 2, Count: 2, Objects: []string{"team_web_apps_Deployment"}}},
				Kept:  []RemovalObject{goldenObject()}, Blockers: []RemovalObject{goldenObject()},
				Dependents: []string{"KsctlInstall team/shop has to go first"}},
			Removed: ptr.To[int32](0), Left: ptr.To[int32](3), Remaining: []RemovalObject{goldenObject()},
			Inventory: goldenInventoryStatus(), Cluster: "clusters.prod",
			ClusterUID: "0b8a7c5d-2d52-4c62-9f6b-8a1f0ad0c002",
		},
	}
}

func goldenSource() *KsctlSource {
	return &KsctlSource{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "KsctlSource"},
		ObjectMeta: goldenMeta("stacks", map[string]string{RequestedAtAnnotation: "2026-05-01T11:00:00Z"}),
		Spec: KsctlSourceSpec{
			Schedule: goldenSchedule(),
			Git: &GitSource{URL: "https://git.example.com/stacks", Ref: &GitRef{Branch: "main", Tag: "v1",
				SemVer: ">=1.0.0", Commit: "5f0c"},
				SecretRef: goldenSecret("git"), ProxySecretRef: goldenSecret("proxy"), RecurseSubmodules: true,
				Verify: &GitVerification{Mode: VerifyTagAndHEAD, SecretRef: *goldenSecret("keys")}},
			OCI: &OCISource{URL: "oci://registry.example.com/stacks", Ref: &OCIRef{Tag: "latest", SemVer: ">=1.0.0",
				Digest: "sha256:dd"},
				LayerSelector:      &OCILayerSelector{MediaType: "application/vnd.example.tar+gzip"},
				SecretRef:          goldenSecret("registry"),
				ServiceAccountName: "puller", CertSecretRef: goldenSecret("registry-ca"),
				ProxySecretRef: goldenSecret("proxy"), Insecure: true,
				Verify: &OCIVerification{Provider: Notation, SecretRef: goldenSecret("keys"),
					TrustedRootSecretRef: goldenSecret("root"),
					MatchOIDCIdentity:    []OIDCIdentityMatch{{Issuer: "^https://issuer$", Subject: "^subject$"}}}},
			Ignore: "*.md\n", Webhook: &SourceWebhook{Type: GenericHMACWebhook, SecretRef: *goldenSecret("hook")},
			CommitStatus: &SourceCommitStatus{Type: GitLabStatus, SecretRef: *goldenSecret("token"),
				Address: "https://git.example.com", Cluster: "prod"},
		},
		Status: KsctlSourceStatus{
			CommonStatus: goldenStatus(),
			Artifact: &fluxmeta.Artifact{Digest: "sha256:ee", Path: "ksctlsource/team/stacks/5f0c.tar.gz",
				URL:      "http://source/5f0c.tar.gz",
				Revision: "main@sha1:5f0c", LastUpdateTime: goldenTime, Size: ptr.To[int64](4096),
				Metadata: map[string]string{"org.example": "x"}},
			SourceVerificationMode: VerifyTagAndHEAD, ObservedContent: "sha256:ff",
			WebhookPath: "/hook/0123456789abcdef",
		},
	}
}

func goldenInventory() *KsctlInventory {
	return &KsctlInventory{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "KsctlInventory"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web-0123456789abcdef-0",
			Labels: map[string]string{"ksctl.com/inventory-of": "0123456789abcdef"}},
		Owner:   InventoryOwner{Group: GroupVersion.Group, Kind: "KsctlInstall", Name: "web"},
		Entries: []InventoryEntry{goldenEntry()},
	}
}
