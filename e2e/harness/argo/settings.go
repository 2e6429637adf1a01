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

// Namespace is the default namespace of Argo CD. ServiceAccount is the account of its programs.
const (
	Namespace      = "argocd"
	ServiceAccount = "argocd-application-controller"
)

// Finalizer makes the deletion of an Application delete its resources.
const Finalizer = "resources-finalizer.argocd.argoproj.io"

// RefreshAnnotation requests an immediate comparison of an Application with its repository, as Argo
// CD's webhook does. The controller removes the annotation afterwards.
const RefreshAnnotation = "argocd.argoproj.io/refresh"

// RefreshPatch sets [RefreshAnnotation].
var RefreshPatch = client.RawPatch(types.MergePatchType,
	fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"normal"}}}`, RefreshAnnotation))

// CRDPaths returns the files of Argo CD's CRDs.
func CRDPaths(ctx context.Context) ([]string, error) {
	module, err := tools.ModuleDir(ctx, tools.ArgoCD)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(module, "manifests", "crds", "*-crd.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("module %s contains no CRDs of Argo CD", module)
	}
	return files, err
}

// DefaultSettings returns the data of argocd-cm in Argo CD's installation manifests: the resources
// that its cluster cache excludes.
func DefaultSettings(ctx context.Context) (map[string]string, error) {
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
		return nil, fmt.Errorf("parsing %s: %w", file, err)
	}
	return settings.Data, nil
}

// PrepareNamespace creates the namespace, the ServiceAccount, the ConfigMaps, the Secret and the
// default AppProject of an Argo CD installation, with the given data of argocd-cm. It waits until
// the account has all permissions. The CRDs must exist.
func PrepareNamespace(ctx context.Context, controlPlane *cluster.Cluster, namespace string,
	settings map[string]string) error {
	data := "" // an empty data field would be owned by this field manager and conflict with other writers
	if len(settings) > 0 {
		text, err := json.Marshal(settings)
		if err != nil {
			return err
		}
		data = "data: " + string(text)
	}
	if err := controlPlane.ApplyYAML(ctx,
		[]byte(strings.NewReplacer("NAMESPACE", namespace, "DATA", data).Replace(installationManifest))); err != nil {
		return err
	}
	return controlPlane.AwaitPermission(ctx, cluster.ServiceAccountUser(namespace, ServiceAccount),
		authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
}

const installationManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ` + ServiceAccount + `, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-application-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: ` + ServiceAccount + `, namespace: NAMESPACE}]
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
