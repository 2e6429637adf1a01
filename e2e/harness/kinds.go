package harness

import (
	"context"
	"fmt"

	"github.com/ksctl/gitops/e2e/cluster"
)

// groupRule lets the controller grant what it serves, as docs/kinds.md describes.
const groupRule = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ksctl-gitops-kinds-test}
rules: [{apiGroups: [%[1]s], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ksctl-gitops-kinds-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ksctl-gitops-kinds-test}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[3]s}]
`

// AllowKinds permits the controller to serve kinds in an API group, which --kind-groups must list.
func AllowKinds(ctx context.Context, plane *cluster.Cluster, group string) error {
	for _, file := range []string{"role.yaml", "role_binding.yaml"} {
		if err := plane.Apply(ctx, RepoPath("config/kinds/"+file)); err != nil {
			return err
		}
	}
	return plane.ApplyYAML(ctx, fmt.Appendf(nil, groupRule, group, ServiceAccount, SystemNamespace))
}
