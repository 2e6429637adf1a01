package match

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// NoSuchComponentReason is that of a spec whose components name one that there is not.
const NoSuchComponentReason = "NoSuchComponent"

// NoSuchComponentError says that there are no components of some names.
type NoSuchComponentError struct {
	// Of is who has none of them, such as "the stack".
	Of      string
	Unknown []string
	Have    []string
}

func (e *NoSuchComponentError) Error() string {
	var names []string
	for _, name := range e.Unknown {
		text := fmt.Sprintf("%q", name)
		if near := stacks.Nearest(name, e.Have); near != "" {
			text += fmt.Sprintf(" (did you mean %q?)", near)
		}
		names = append(names, text)
	}
	return fmt.Sprintf("spec.components: %s has no component %s; it has %s", e.Of, strings.Join(names, ", "), strings.Join(e.Have, ", "))
}

// Components are refused, with a NoSuchComponentError, where a spec names some that
// are not among those that there are.
func Components(spec *appsv1.KsctlRemoveSpec, of string, have []string) error {
	var unknown []string
	for _, c := range spec.Components {
		if !slices.Contains(have, c) {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return &NoSuchComponentError{Of: of, Unknown: unknown, Have: have}
}
