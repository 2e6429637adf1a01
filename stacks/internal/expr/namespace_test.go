package expr

import "testing"

func TestRenameNamespace(t *testing.T) {
	for source, want := range map[string]string{
		"namespace":                            "namespac_",
		"name + '/' + namespace":               "name + '/' + namespac_",
		"stack.namespace + stack . namespace":  "stack.namespace + stack . namespace",
		"stack.?namespace":                     "stack.?namespace",
		`'namespace' + "namespace"`:            `'namespace' + "namespace"`,
		`'\'namespace' + namespace`:            `'\'namespace' + namespac_`,
		`r'\' + namespace`:                     `r'\' + namespac_`,
		"\"\"\"a\"namespace\"\"\" + namespace": "\"\"\"a\"namespace\"\"\" + namespac_",
		"1 // namespace\n+ namespace":          "1 // namespace\n+ namespac_",
		"namespaces + mynamespace":             "namespaces + mynamespace",
		"'namespace":                           "'namespace",
	} {
		if got := renameNamespace(source); got != want {
			t.Errorf("%s: got %s, want %s", source, got, want)
		}
	}
}
