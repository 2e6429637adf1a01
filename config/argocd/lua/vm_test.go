package lua

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// A script that uses a library that Argo CD does not offer fails here, too.
func TestAllowedLibraries(t *testing.T) {
	for script, allowed := range map[string]bool{
		`table.insert({}, 1)`:                    true,
		`for _ in ipairs({}) do end`:             true,
		`return {x = require("os").date("!%F")}`: true,
		`return {x = require("os").time()}`:      true,
		`string.len("x")`:                        false,
		`local x = ("x"):len()`:                  false,
		`math.floor(1)`:                          false,
		`os.time()`:                              false,
		`require("os").exit(1)`:                  false,
		`require("os").getenv("HOME")`:           false,
		`io.write("x")`:                          false,
		`debug.traceback()`:                      false,
		`coroutine.create(function() end)`:       false,
		`require("string")`:                      false,
	} {
		if !strings.HasPrefix(script, "return") {
			script += "\nreturn {}"
		}
		if _, err := run[any](script, nil); (err == nil) != allowed {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestInvalidScriptsFail(t *testing.T) {
	defer func(d time.Duration) { timeout = d }(timeout)
	timeout = time.Second
	for name, script := range map[string]string{
		"endless loop":    `while true do end`,
		"not a table":     `return "Healthy"`,
		"no return value": `local x = 1`,
		"invalid Lua":     `return {`,
		"wrong type":      `return {status = {}, message = {}}`,
	} {
		if h, err := RunHealth(script, nil); err == nil {
			t.Errorf("%s: got %+v, want an error", name, h)
		}
	}
}

func TestRunActionKeepsEmptyMapsAndLists(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"map": map[string]any{}, "list": []any{}, "number": int64(3),
		"inside": []any{map[string]any{"map": map[string]any{}}}}}
	got, err := RunAction("obj.spec.new = true\nreturn obj", object)
	want := map[string]any{"spec": map[string]any{"map": map[string]any{}, "list": []any{}, "number": float64(3),
		"new":    true,
		"inside": []any{map[string]any{"map": map[string]any{}}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
