// Package lua runs health and action scripts like Argo CD does, but without Argo CD: in a Lua VM
// with few libraries, and with a timeout.
//
// The VM has the libraries of util/lua/lua.go and util/lua/oslib_safe.go of Argo CD v3.5.7 without
// useOpenLibs: base, package and table, and of os only time and date, which a script gets with
// require("os").
package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"
)

// timeout is the timeout of a script. Argo CD's is a second, which is too short on a busy test
// machine.
var timeout = time.Minute

// Health is what a health script returns.
type Health struct {
	// Status is Healthy, Progressing, Degraded, Suspended, Missing or Unknown.
	Status  string `json:"status"`
	Message string `json:"message"`
}

// RunHealth runs a health script on an object and returns the result.
func RunHealth(script string, object map[string]any) (Health, error) {
	return run[Health](script, object)
}

// Action is an action that a discovery script returns.
type Action struct {
	Disabled bool `json:"disabled"`
}

// RunDiscovery runs a discovery script on an object and returns the actions by name.
func RunDiscovery(script string, object map[string]any) (map[string]Action, error) {
	return run[map[string]Action](script, object)
}

// RunAction runs an action script on an object and returns the changed object, which Argo CD sends
// as a patch. Empty maps and lists keep their type.
func RunAction(script string, object map[string]any) (map[string]any, error) {
	out, err := run[map[string]any](script, object)
	restoreEmptyMaps(out, object)
	return out, err
}

// run executes a script with object as the global obj, and decodes the returned table.
func run[T any](script string, object map[string]any) (out T, err error) {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	openLibs(l)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	l.SetContext(ctx)
	l.SetGlobal("obj", toLua(l, object))
	if err := l.DoString(script); err != nil {
		return out, err
	}
	returned := l.Get(-1)
	if returned.Type() != lua.LTTable {
		return out, fmt.Errorf("the script returns a %s, not a table", returned.Type())
	}
	data, err := luajson.Encode(returned)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return out, fmt.Errorf("decoding the table that the script returned: %w", err)
	}
	return out, nil
}

// openLibs loads the allowed libraries into the VM.
func openLibs(l *lua.LState) {
	lua.OpenOs(l)
	fullOS, restrictedOS := l.GetGlobal(lua.OsLibName), l.NewTable()
	for _, name := range []string{"time", "date"} {
		l.SetField(restrictedOS, name, l.GetField(fullOS, name))
	}
	l.SetGlobal(lua.OsLibName, lua.LNil)
	lua.OpenPackage(l)
	lua.OpenBase(l)
	lua.OpenTable(l)
	// The full os library is also cached as a loaded module.
	l.SetField(l.GetField(l.Get(lua.RegistryIndex), "_LOADED"), lua.OsLibName, lua.LNil)
	l.PreloadModule(lua.OsLibName, func(l *lua.LState) int {
		l.Push(restrictedOS)
		return 1
	})
	l.SetTop(0)
}

// toLua converts a part of an object to a Lua value.
func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, item := range v {
			t.Append(toLua(l, item))
		}
		return t
	case map[string]any:
		t := l.CreateTable(0, len(v))
		for key, item := range v {
			t.RawSetString(key, toLua(l, item))
		}
		return t
	}
	return lua.LNil
}

// restoreEmptyMaps turns empty lists back into empty maps where the object had an empty map, like
// Argo CD does. Lua has one type for both, so an empty map is returned as an empty list.
func restoreEmptyMaps(after, before any) {
	switch after := after.(type) {
	case map[string]any:
		was, _ := before.(map[string]any)
		for key, item := range after {
			if list, ok := item.([]any); ok && len(list) == 0 {
				if m, ok := was[key].(map[string]any); ok {
					after[key] = m
					continue
				}
			}
			restoreEmptyMaps(item, was[key])
		}
	case []any:
		was, _ := before.([]any)
		for i := range min(len(after), len(was)) {
			restoreEmptyMaps(after[i], was[i])
		}
	}
}
