package match

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// NoSuchComponentReason means that spec.components has a component that does not exist.
const NoSuchComponentReason = "NoSuchComponent"

// NoSuchComponentError reports components that do not exist.
type NoSuchComponentError struct {
	// Subject is the subject of the message, such as "the stack".
	Subject   string
	Unknown   []string
	Available []string
}

func (e *NoSuchComponentError) Error() string {
	var names []string
	for _, name := range e.Unknown {
		text := fmt.Sprintf("%q", name)
		if near := stacks.Nearest(name, e.Available); near != "" {
			text += fmt.Sprintf(" (did you mean %q?)", near)
		}
		names = append(names, text)
	}
	return fmt.Sprintf("spec.components: %s has no component %s; it has %s", e.Subject, strings.Join(names, ", "), strings.Join(e.Available, ", "))
}

// CheckComponents returns a NoSuchComponentError if spec.components has components that are not in
// have.
func CheckComponents(spec *appsv1.KsctlRemoveSpec, subject string, have []string) error {
	var unknown []string
	for _, c := range spec.Components {
		if !slices.Contains(have, c) {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return &NoSuchComponentError{Subject: subject, Unknown: unknown, Available: have}
}
