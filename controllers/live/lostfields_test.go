package live

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

func TestLostFields(t *testing.T) {
	const item = `"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": `
	for name, tc := range map[string]struct {
		applied, object, ours string
		others                []string
		want                  string
	}{
		"nothing": {`{"a": 1}`, `"a": 1`, `{"f:a": {}}`, nil, ""},
		"a value": {`{"a": 1, "b": 2}`, `"a": 5, "b": 2`, `{"f:b": {}}`, []string{`{"f:a": {}}`}, "/a by other"},
		"a value that both own, and a field of others": {`{"a": 1}`, `"a": 1, "c": 1`, `{"f:a": {}}`,
			[]string{`{"f:a": {}, "f:c": {}}`}, ""},
		"a removed field": {`{"a": 1, "m": {"x/y": 1}}`, `"a": 1`, `{"f:a": {}}`, nil, "/m"},
		"a removed key":   {`{"m": {"x/y": 1, "z": 1}}`, `"m": {"z": 1}`, `{"f:m": {"f:z": {}}}`, nil, "/m/x~1y"},
		"a field that is not stored beside a changed one": {`{"a": 1, "typo": 2}`, `"a": 5`, `{}`, []string{`{"f:a": {}}`},
			"/a by other"},
		"the status and the name": {`{"apiVersion": "v1", "metadata": {"name": "x"}, "status": {"a": 1}}`, `"a": 5`, `{}`,
			nil, ""},
		"a null":        {`{"a": null}`, `"b": 1`, `{}`, nil, ""},
		"an empty map":  {`{"a": {}}`, `"a": {"x": 1}`, `{"f:a": {}}`, []string{`{"f:a": {"f:x": {}}}`}, ""},
		"an atomic map": {`{"a": {"x": 1}}`, `"a": {"x": 2}`, `{}`, []string{`{"f:a": {}}`}, "/a by other"},
		"a key of a map that others took over": {`{"a": {"x": 1, "y": {"z": 2}}}`, `"a": {"x": 2, "y": {"z": 2}}`,
			`{"f:a": {"f:y": {"f:z": {}}}}`, []string{`{"f:a": {"f:x": {}}}`}, "/a/x by other"},
		"an atomic list": {`{"a": [1]}`, `"a": [1, 2]`, `{}`, []string{`{"f:a": {}}`}, "/a by other"},
		"a set that has our value": {`{"a": ["x"]}`, `"a": ["x", "y"]`, `{"f:a": {"v:\"x\"": {}}}`,
			[]string{`{"f:a": {"v:\"y\"": {}}}`}, ""},
		"a set that lacks our value": {`{"a": ["x", "z"]}`, `"a": ["x", "y"]`, `{"f:a": {"v:\"x\"": {}}}`,
			[]string{`{"f:a": {"v:\"y\"": {}}}`}, "/a by other"},
		"a field of an item": {`{"p": [{"name": "w", "containerPort": 80, "h": 1}]}`,
			`"p": [{"containerPort": 79}, {"name": "w", "containerPort": 80, "protocol": "TCP", "h": 2}]`,
			`{"f:p": {` + item + `{".": {}, "f:name": {}, "f:containerPort": {}}}}`, []string{`{"f:p": {` + item + `{"f:h": {}}}}`},
			"/p/[containerPort=80]/h by other"},
		"a field of an item with an ambiguous key": {`{"p": [{"containerPort": 80, "h": 1}]}`,
			`"p": [{"containerPort": 80, "protocol": "TCP", "h": 2}, {"containerPort": 80, "protocol": "UDP"}]`,
			`{"f:p": {` + item + `{".": {}, "f:containerPort": {}}}}`, []string{`{"f:p": {` + item + `{"f:h": {}}}}`},
			"/p/[protocol=TCP]/h by other"},
		"a removed item": {`{"p": [{"containerPort": 80}, {"containerPort": 81}]}`, `"p": [{"containerPort": 80, "protocol": "TCP"}]`,
			`{"f:p": {` + item + `{".": {}, "f:containerPort": {}}}}`, nil, "/p/[containerPort=81]"},
	} {
		var applied map[string]any
		if err := json.Unmarshal([]byte(tc.applied), &applied); err != nil {
			t.Fatal(name, err)
		}
		var got []string
		for _, l := range LostFields(objectWithManagedFields(t, "Thing", tc.object, tc.ours, tc.others...), applied) {
			text := l.Path
			if len(l.Managers) > 0 {
				text += " by " + strings.Join(l.Managers, "+")
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: got %s, want %s", name, text, tc.want)
		}
	}
}
