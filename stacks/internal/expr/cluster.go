package expr

const clusterVariable = "cluster"

// clusterSchema is the schema of the variable cluster. Without a cluster it is empty.
var clusterSchema = object(map[string]any{
	"name": typed("string"), "namespace": typed("string"), "labels": texts, "annotations": texts,
	"kubernetesVersion": typed("string"),
	"facts": object(map[string]any{"name": typed("string"), "cloud": typed("string"), "region": typed("string"),
		"type": typed("string"), "distribution": typed("string"), "versions": texts,
		"pools": map[string]any{"type": "array", "items": object(map[string]any{"role": typed("string"),
			"size": typed("string"), "count": typed("integer")})}}),
})

var texts = map[string]any{"type": "object", "additionalProperties": typed("string")}

func typed(name string) map[string]any { return map[string]any{"type": name} }

func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties}
}
