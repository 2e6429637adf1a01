package match

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// CheckComponents returns a terminal error if spec.components has components that are not in have.
// subject is the subject of the message, such as "the stack".
func CheckComponents(spec *appsv1.KsctlRemoveSpec, subject string, have []string) error {
	var unknown []string
	for _, c := range spec.Components {
		if slices.Contains(have, c) {
			continue
		}
		text := fmt.Sprintf("%q", c)
		if near := stacks.Nearest(c, have); near != "" {
			text += fmt.Sprintf(" (did you mean %q?)", near)
		}
		unknown = append(unknown, text)
	}
	if len(unknown) == 0 {
		return nil
	}
	return reconcile.NewTerminalError(appsv1.NoSuchComponentReason,
		"spec.components: %s has no component %s; it has %s", subject, strings.Join(unknown, ", "),
		strings.Join(have, ", "))
}
