package live

import (
	"strings"
	"testing"
)

func TestDifferences(t *testing.T) {
	const items = `{"f:p": {"k:{\"name\":\"a\"}": {}, "k:{\"name\":\"b\"}": {}}}`
	for name, tc := range map[string]struct{ before, after, owned, want string }{
		"nothing":                  {`"a": 1, "b": {"c": [1]}`, `"a": 1, "b": {"c": [1]}`, `{}`, ""},
		"the metadata":             {`"metadata": {"labels": {"a": "1"}}`, `"metadata": {"labels": {"a": "2"}}`, `{}`, ""},
		"the status":               {`"status": {"a": 1}`, `"status": {"a": 2}`, `{}`, ""},
		"the metadata of a pod":    {`"t": {"metadata": {"a": 1}}`, `"t": {"metadata": {"a": 2}}`, `{}`, "/t/metadata/a"},
		"a value":                  {`"a": {"b": 1, "c": 1}`, `"a": {"b": 2, "c": 1}`, `{}`, "/a/b"},
		"the outermost field":      {`"a": 1, "b": {"c": {"d": 1}}`, `"a": 1`, `{}`, "/b"},
		"a new field":              {`"a": 1`, `"a": 1, "b": {"c": {"d": 1}}`, `{}`, "/b"},
		"a map that is a value":    {`"a": {"b": 1}`, `"a": "b"`, `{}`, "/a"},
		"values and their order":   {`"b/c": 1, "a": 1`, `"b/c": 2, "a": 2`, `{}`, "/a, /b~1c"},
		"a value of a list":        {`"a": [1, 2]`, `"a": [1, 3]`, `{}`, "/a/1"},
		"the length of a list":     {`"a": [1, 2]`, `"a": [1]`, `{}`, "/a"},
		"a field of an item":       {`"p": [{"name": "a", "x": 1}]`, `"p": [{"name": "a", "x": 2}]`, items, "/p/[name=a]/x"},
		"the order of items":       {`"p": [{"name": "a"}, {"name": "b"}]`, `"p": [{"name": "b"}, {"name": "a"}]`, items, ""},
		"an item that is removed":  {`"p": [{"name": "a"}, {"name": "b"}]`, `"p": [{"name": "b"}]`, items, "/p/[name=a]"},
		"an item that is added":    {`"p": [{"name": "a"}]`, `"p": [{"name": "a"}, {"name": "b"}]`, items, "/p/[name=b]"},
		"an item without an owner": {`"p": [{"name": "a"}]`, `"p": [{"name": "a"}, {"name": "c"}]`, items, "/p"},
	} {
		before := objectWithManagedFields(t, "Thing", tc.before, `{}`)
		after := objectWithManagedFields(t, "Thing", tc.after, tc.owned)
		if got := strings.Join(Differences(before, after), ", "); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
