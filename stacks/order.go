package stacks

import (
	"slices"
	"strings"
)

// orderedComponent is the index of a component in the spec, and its wave.
type orderedComponent struct {
	index int
	wave  int
}

// dependencyOrder sorts components after their dependencies, otherwise as declared. It returns an
// error that names the cycle, if there is one. It ignores dependencies that do not exist:
// validator.checkNames reports them.
func dependencyOrder(def *Definition) ([]orderedComponent, *Error) {
	components := def.Spec.Components
	index := map[string]int{}
	for i := range components {
		if _, twice := index[components[i].Name]; !twice {
			index[components[i].Name] = i
		}
	}
	waves := make([]int, len(components))
	done := make([]bool, len(components))
	var out []orderedComponent
	for len(out) < len(components) {
		next := slices.IndexFunc(components, func(c Component) bool {
			i := index[c.Name]
			return !done[i] && dependenciesDone(&c, index, done)
		})
		if next < 0 {
			break
		}
		for _, dep := range components[next].DependsOn {
			if i, ok := index[dep]; ok {
				waves[next] = max(waves[next], waves[i]+1)
			}
		}
		done[next] = true
		out = append(out, orderedComponent{index: next, wave: waves[next]})
	}
	if len(out) == len(index) {
		return out, nil
	}
	cycle := findCycle(components, index, done)
	return nil, def.componentField(index[cycle[0]], "dependsOn").
		fieldErrorf("makes a cycle: %s", strings.Join(cycle, " → "))
}

func dependenciesDone(c *Component, index map[string]int, done []bool) bool {
	for _, dep := range c.DependsOn {
		if i, ok := index[dep]; ok && !done[i] {
			return false
		}
	}
	return true
}

// findCycle follows dependencies that are not done until it visits a component twice.
func findCycle(components []Component, index map[string]int, done []bool) []string {
	start := slices.IndexFunc(components, func(c Component) bool { return !done[index[c.Name]] })
	var trail []string
	for name := components[start].Name; ; {
		if at := slices.Index(trail, name); at >= 0 {
			return append(slices.Clone(trail[at:]), name)
		}
		trail = append(trail, name)
		for _, dep := range components[index[name]].DependsOn {
			if i, ok := index[dep]; ok && !done[i] {
				name = dep
				break
			}
		}
	}
}
