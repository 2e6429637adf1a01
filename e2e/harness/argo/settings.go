package argo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/tools"
)

// Namespace is where Argo CD is unless somebody wants another one, Account is as whom
// its programs act.
const (
	Namespace = "argocd"
	Account   = "argocd-application-controller"
)

// Finalizer of an Application has what it synced go with it.
const Finalizer = "resources-finalizer.argocd.argoproj.io"

// RefreshAnnotation has an Application compared with its repository now, as a webhook of
// Argo CD sets it. The controller takes it away when that is done.
const RefreshAnnotation = "argocd.argoproj.io/refresh"

// Refresh sets it.
var Refresh = client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"normal"}}}`, RefreshAnnotation))

// Definitions are the files of the CRDs.
func Definitions(ctx context.Context) ([]string, error) {
	module, err := tools.ModuleDir(ctx, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(module, "manifests", "crds", "*-crd.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no definitions of Argo CD's kinds", module)
	}
	return files, err
}

// Shipped is what argocd-cm holds in the manifests that Argo CD is installed with: what
// its cache of the cluster leaves out.
func Shipped(ctx context.Context) (map[string]string, error) {
	module, err := tools.ModuleDir(ctx, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(module, "manifests", "base", "config", "argocd-cm.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var settings corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &settings); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return settings.Data, nil
}

// Prepare makes what an installation in a namespace begins with, the namespace among it,
// with what argocd-cm is to hold, and waits until its account may do everything. The
// definitions are to be there.
func Prepare(ctx context.Context, plane *cluster.Cluster, namespace string, settings map[string]string) error {
	data := "" // an empty one would be ours, and none for others to add to
	if len(settings) > 0 {
		text, err := json.Marshal(settings)
		if err != nil {
			return err
		}
		data = "data: " + string(text)
	}
	if err := plane.ApplyYAML(ctx, []byte(strings.NewReplacer("NAMESPACE", namespace, "DATA", data).Replace(installation))); err != nil {
		return err
	}
	return plane.AwaitRight(ctx, cluster.ServiceAccountUser(namespace, Account), authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
}

const installation = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ` + Account + `, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-application-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: ` + Account + `, namespace: NAMESPACE}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: NAMESPACE, labels: {app.kubernetes.io/part-of: argocd}}
DATA
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-rbac-cm, namespace: NAMESPACE, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-tls-certs-cm, namespace: NAMESPACE, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-ssh-known-hosts-cm, namespace: NAMESPACE, labels: {app.kubernetes.io/part-of: argocd}}
---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: NAMESPACE, labels: {app.kubernetes.io/part-of: argocd}}
stringData: {server.secretkey: e2e}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: NAMESPACE}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`
