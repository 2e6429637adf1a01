package cluster

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func mergePatch(body map[string]any) (client.Patch, error) {
	data, err := json.Marshal(body)
	return client.RawPatch(types.MergePatchType, data), err
}

// parseName reads <namespace>/<name>.
func parseName(s string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
