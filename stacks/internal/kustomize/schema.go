package kustomize

import (
	"fmt"
	"sync"

	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/ksctl/gitops/stacks/problem"
)

// schemaLock guards the OpenAPI schema of kustomize, which is global. What reads the schema of
// Kubernetes shares the lock. A build with a schema of its own holds it alone, because it replaces
// the schema.
var schemaLock sync.RWMutex

// parseOpenAPISchema parses the schema of Kubernetes. Builds read it at the same time, and
// kustomize has no lock for that, so it must be parsed before the first of them.
var parseOpenAPISchema = sync.OnceFunc(func() { openapi.Schema() })

// lockKubernetesSchema makes sure that the OpenAPI schema is that of Kubernetes until the returned
// function is called.
func lockKubernetesSchema() (unlock func()) {
	schemaLock.RLock()
	parseOpenAPISchema()
	return schemaLock.RUnlock
}

// runLocked runs a build of the scanned kustomizations under the schemaLock.
func runLocked(scanned *scanner, build func() (resmap.ResMap, error)) (resmap.ResMap, error) {
	if scanned.ownSchema {
		return runAlone(scanned.schemas, build)
	}
	defer lockKubernetesSchema()()
	return build()
}

// runAlone runs a build that changes the OpenAPI schema, and restores the schema of Kubernetes. As
// in a new process, the build begins without a schema: its own one replaces that of Kubernetes.
// schemas are the files of the build's own schemas: kustomize panics if it cannot parse one.
func runAlone(schemas []string, build func() (resmap.ResMap, error)) (built resmap.ResMap, err error) {
	schemaLock.Lock()
	defer schemaLock.Unlock()
	defer func() {
		openapi.ResetOpenAPI()
		openapi.Schema()
	}()
	defer func() {
		switch v := recover(); {
		case v == nil:
		case len(schemas) == 0:
			panic(v)
		default:
			built, err = nil, problem.Errorf(schemas[0], 0, "kustomize cannot use this OpenAPI schema: %s",
				oneLine(fmt.Errorf("%v", v)))
		}
	}()
	openapi.ResetOpenAPI()
	return build()
}
