// Package lua runs scripts for health and actions as Argo CD runs those of its
// argocd-cm, without Argo CD: in a machine with few libraries, and for a few seconds at most.
//
// What the machine has is that of util/lua/lua.go and util/lua/oslib_safe.go of Argo CD
// v3.5.7 where useOpenLibs is not set: the base library, package and table, and of os
// only time and date, which a script gets with require("os").
package lua

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"
)

// timeout of one script. Argo CD gives it a second, on a machine that is less busy.
var timeout = time.Minute

// Health is what a health script returns.
type Health struct {
	// Status is Healthy, Progressing, Degraded, Suspended, Missing or Unknown.
	Status  string `json:"status"`
	Message string `json:"message"`
}

// HealthOf returns what a health script says of an object.
func HealthOf(script string, object map[string]any) (Health, error) {
	var h Health
	err := run(script, object, &h)
	return h, err
}

// Action is one that a discovery script offers.
type Action struct {
	Disabled bool `json:"disabled"`
}

// ActionsOf returns the actions that a discovery script offers for an object, by name.
func ActionsOf(script string, object map[string]any) (map[string]Action, error) {
	var out map[string]Action
	err := run(script, object, &out)
	return out, err
}

// Act returns the object that an action's script makes of one, which Argo CD sends as
// a patch. What was empty is empty in the same way.
func Act(script string, object map[string]any) (map[string]any, error) {
	var out map[string]any
	if err := run(script, object, &out); err != nil {
		return nil, err
	}
	restore(out, object)
	return out, nil
}

// run executes a script with an object as obj, and decodes the table that it returns.
func run(script string, object map[string]any, into any) error {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	open(l)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	l.SetContext(ctx)
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(script); err != nil {
		return err
	}
	returned := l.Get(-1)
	if returned.Type() != lua.LTTable {
		return fmt.Errorf("the script returns a %s, not a table", returned.Type())
	}
	data, err := luajson.Encode(returned)
	if err != nil {
		return fmt.Errorf("what the script returns: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("what the script returns: %w", err)
	}
	return nil
}

// open gives the machine what it may have.
func open(l *lua.LState) {
	lua.OpenOs(l)
	whole, safe := l.GetGlobal(lua.OsLibName), l.NewTable()
	for _, name := range []string{"time", "date"} {
		l.SetField(safe, name, l.GetField(whole, name))
	}
	l.SetGlobal(lua.OsLibName, lua.LNil)
	lua.OpenPackage(l)
	lua.OpenBase(l)
	lua.OpenTable(l)
	// What was opened is kept as loaded, too.
	l.SetField(l.GetField(l.Get(lua.RegistryIndex), "_LOADED"), lua.OsLibName, lua.LNil)
	l.PreloadModule(lua.OsLibName, func(l *lua.LState) int {
		l.Push(safe)
		return 1
	})
	l.SetTop(0)
}

// value is a part of an object for a script.
func value(l *lua.LState, v any) lua.LValue {
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
			t.Append(value(l, item))
		}
		return t
	case map[string]any:
		t := l.CreateTable(0, len(v))
		for key, item := range v {
			t.RawSetString(key, value(l, item))
		}
		return t
	}
	return lua.LNil
}

// restore mends what a script can't tell apart, as Argo CD does: a map that was empty
// comes back as an empty list.
func restore(after, before any) {
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
			restore(item, was[key])
		}
	case []any:
		was, _ := before.([]any)
		for i := range min(len(after), len(was)) {
			restore(after[i], was[i])
		}
	}
}
