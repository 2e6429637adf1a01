package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// valuesName is how a values reference is named on the command line: kind/name/key, and
// what depends on the cluster by its component.
func valuesName(ref appsv1.ValuesReference) string {
	if ref.Kind == appsv1.ClusterValues {
		return ref.Kind + "/" + ref.Component + "/" + stacks.ValuesKey(ref)
	}
	return ref.Kind + "/" + ref.Name + "/" + stacks.ValuesKey(ref)
}

// parseValuesFrom reads the files of kind/name/key=file.
func parseValuesFrom(flags []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, flag := range flags {
		ref, file, ok := strings.Cut(flag, "=")
		parts := strings.SplitN(ref, "/", 3)
		if !ok || len(parts) != 3 || parts[0] != "ConfigMap" && parts[0] != "Secret" {
			return nil, fmt.Errorf("--values-from %s: ConfigMap/name/key=file or Secret/name/key=file is expected", flag)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out[ref] = data
	}
	return out, nil
}

// setParameters puts key=value flags into the parameters of the stack.
func setParameters(choices *stacks.Choices, flags []string) error {
	for _, flag := range flags {
		path, value, err := parseSet("--set", flag)
		if err != nil {
			return err
		}
		if choices.Parameters, err = put(choices.Parameters, path, value); err != nil {
			return fmt.Errorf("--set %s: %w", flag, err)
		}
	}
	return nil
}

// setOverrides puts component.key=value flags into the overrides of components.
func setOverrides(choices *stacks.Choices, flags []string) error {
	for _, flag := range flags {
		path, value, err := parseSet("--override", flag)
		if err != nil {
			return err
		}
		if len(path) < 2 {
			return fmt.Errorf("--override %s: component.key=value is expected", flag)
		}
		choice := choiceFor(choices, path[0])
		if choice.Override, err = put(choice.Override, path[1:], value); err != nil {
			return fmt.Errorf("--override %s: %w", flag, err)
		}
	}
	return nil
}

func choiceFor(choices *stacks.Choices, component string) *stacks.ComponentChoice {
	for i := range choices.Components {
		if choices.Components[i].Name == component {
			return &choices.Components[i]
		}
	}
	choices.Components = append(choices.Components, stacks.ComponentChoice{Name: component})
	return &choices.Components[len(choices.Components)-1]
}

// parseSet splits a.b=value; a dot after a backslash is part of the key.
func parseSet(name, flag string) ([]string, any, error) {
	key, text, ok := strings.Cut(flag, "=")
	if !ok || key == "" {
		return nil, nil, fmt.Errorf("%s %s: key=value is expected", name, flag)
	}
	var path []string
	for part := range strings.SplitSeq(strings.ReplaceAll(key, `\.`, "\x00"), ".") {
		if part == "" {
			return nil, nil, fmt.Errorf("%s %s: a key is empty", name, flag)
		}
		path = append(path, strings.ReplaceAll(part, "\x00", "."))
	}
	// The value goes through the same door as that of an install.
	var holder stacks.ComponentChoice
	raw, err := yaml.YAMLToJSON([]byte("override: {v: " + text + "}"))
	if err != nil {
		raw, err = yaml.YAMLToJSON([]byte("override:\n  v: " + text))
	}
	if err == nil {
		err = yaml.Unmarshal(raw, &holder)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: the value is not YAML", name, flag)
	}
	return path, holder.Override["v"], nil
}

// put sets a nested key; mappings on the way are made.
func put(m map[string]any, path []string, value any) (map[string]any, error) {
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
	below, err := put(below, path[1:], value)
	m[path[0]] = below
	return m, err
}
