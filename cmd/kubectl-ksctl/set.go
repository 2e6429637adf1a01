package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// readsContent reports whether an install reads a kind/name/key.
func readsContent(spec *appsv1.KsctlInstallSpec, content string) bool {
	return slices.ContainsFunc(spec.ValuesFrom, func(ref appsv1.ValuesReference) bool {
		return content == ref.Kind+"/"+ref.Name+"/"+stacks.ValuesKey(ref)
	}) || slices.ContainsFunc(spec.ParametersFrom, func(ref appsv1.ParametersReference) bool {
		name := ref.Kind + "/" + ref.Name + "/"
		return content == name+ref.Key || ref.Key == "" && strings.HasPrefix(content, name)
	})
}

// parseValuesFrom parses flags of the form kind/name/key=file. It returns the contents of the files
// by kind/name/key.
func parseValuesFrom(flags []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, flag := range flags {
		ref, file, ok := strings.Cut(flag, "=")
		parts := strings.SplitN(ref, "/", 3)
		if !ok || len(parts) != 3 || parts[0] != "ConfigMap" && parts[0] != "Secret" {
			return nil, fmt.Errorf("--values-from %s: ConfigMap/name/key=file or Secret/name/key=file is expected",
				flag)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out[ref] = data
	}
	return out, nil
}

// setParameters sets the parameters of the stack from key=value flags.
func setParameters(choices *stacks.Choices, flags []string) error {
	return forEachSet("--set", flags, func(path []string, value any) (err error) {
		choices.Parameters, err = setNested(choices.Parameters, path, value)
		return err
	})
}

// setOverrides sets the overrides of components from component.key=value flags.
func setOverrides(choices *stacks.Choices, flags []string) error {
	return forEachSet("--override", flags, func(path []string, value any) (err error) {
		if len(path) < 2 {
			return errors.New("component.key=value is expected")
		}
		choice := choiceFor(choices, path[0])
		choice.Override, err = setNested(choice.Override, path[1:], value)
		return err
	})
}

// forEachSet parses flags of the form a.b=value, and calls set with each path and value.
func forEachSet(name string, flags []string, set func(path []string, value any) error) error {
	for _, flag := range flags {
		path, value, err := parseSet(flag)
		if err == nil {
			err = set(path, value)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", name, flag, err)
		}
	}
	return nil
}

// choiceFor returns the choice of a component, and adds it if there is none.
func choiceFor(choices *stacks.Choices, component string) *stacks.ComponentChoice {
	i := slices.IndexFunc(choices.Components, func(c stacks.ComponentChoice) bool { return c.Name == component })
	if i < 0 {
		i = len(choices.Components)
		choices.Components = append(choices.Components, stacks.ComponentChoice{Name: component})
	}
	return &choices.Components[i]
}

// parseSet parses a flag of the form a.b=value. A dot after a backslash is part of the key.
func parseSet(flag string) ([]string, any, error) {
	key, text, ok := strings.Cut(flag, "=")
	if !ok || key == "" {
		return nil, nil, errors.New("key=value is expected")
	}
	var path []string
	for part := range strings.SplitSeq(strings.ReplaceAll(key, `\.`, "\x00"), ".") {
		if part == "" {
			return nil, nil, errors.New("a key is empty")
		}
		path = append(path, strings.ReplaceAll(part, "\x00", "."))
	}
	// Decode the value like an override in an install, so that both have the same Go types.
	var choice stacks.ComponentChoice
	raw, err := yaml.YAMLToJSON([]byte("override: {v: " + text + "}"))
	if err != nil {
		raw, err = yaml.YAMLToJSON([]byte("override:\n  v: " + text))
	}
	if err == nil {
		err = yaml.Unmarshal(raw, &choice)
	}
	if err != nil {
		return nil, nil, errors.New("the value is not YAML")
	}
	return path, choice.Override["v"], nil
}

// setNested sets a nested key and creates missing mappings on its path.
func setNested(m map[string]any, path []string, value any) (map[string]any, error) {
	if m == nil {
		m = map[string]any{}
	}
	if len(path) == 1 {
		m[path[0]] = value
		return m, nil
	}
	below, isMap := m[path[0]].(map[string]any)
	if _, there := m[path[0]]; there && !isMap {
		return nil, fmt.Errorf("%q is not a mapping", path[0])
	}
	below, err := setNested(below, path[1:], value)
	m[path[0]] = below
	return m, err
}
