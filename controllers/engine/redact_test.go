package engine

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ksctl/gitops/stacks"
)

func TestRedactedMessageContainsNoValues(t *testing.T) {
	const secret = "s3cr3t"
	at := field.NewPath("spec", "x")
	invalid := func(errs ...*field.Error) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "X"}, "a", errs)
	}
	mistyped := func() error {
		return apierrors.NewBadRequest("failed to create typed patch object: errors:\n" +
			"  .data.a: expected string, got &value.valueUnstructured{Value:\"s3cr3t }: \\n x\"}\n  .data.b: " +
			"expected string, got &value.valueUnstructured{Value:1}")
	}
	for name, c := range map[string]struct {
		kind string
		err  error
		want string
	}{
		"text": {err: invalid(field.Invalid(at, "a \" s3cr3t: x", "must be short")),
			want: "spec.x: Invalid value: must be short"},
		"object": {err: invalid(field.Invalid(at, map[string]any{"a": "s3cr3t: }", "b": []int{1}},
			"field is immutable")), want: "spec.x: Invalid value: field is immutable"},
		"number": {err: invalid(field.Invalid(at, 99999, "must be between 1 and 65535")),
			want: "spec.x: Invalid value: must be between 1 and 65535"},
		"no detail": {err: invalid(field.Duplicate(at, secret+": "+secret)),
			want: "spec.x: Duplicate value"},
		"unsupported": {err: invalid(field.NotSupported(at, secret, []string{"A", "B"})),
			want: `spec.x: Unsupported value: supported values: "A", "B"`},
		"required": {err: invalid(field.Required(at, "a name is needed")),
			want: "spec.x: Required value: a name is needed"},
		"forbidden": {err: invalid(field.Forbidden(at, "not now")), want: "spec.x: Forbidden: not now"},
		"not JSON":  {err: invalid(field.Invalid(at, func() {}, "s3cr3t")), want: "spec.x: Invalid value"},
		"several": {err: invalid(field.Required(at, "1"), field.Invalid(at, secret, "2")),
			want: "spec.x: Required value: 1; spec.x: Invalid value: 2"},
		"wrong type": {err: mistyped(),
			want: "failed to create typed patch object: errors:\n  .data.a: expected string, got another type"},
		"wrong type in a Secret": {kind: "Secret", err: mistyped(),
			want: "failed to create typed patch object: errors:\n  .data.a: expected string, got another type"},
		"Secret without fields": {kind: "Secret", err: apierrors.NewBadRequest("illegal: s3cr3t"),
			want: "the API server responded with 400 BadRequest; " +
				"its message is withheld because it may contain values of the Secret"},
		"forbidden Secret": {kind: "Secret",
			err:  apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New("no right")),
			want: `secrets "a" is forbidden: no right`},
		"no response": {err: errors.New("connection refused"), want: "connection refused"},
	} {
		got := redactedMessage(stacks.Ref{Kind: c.kind, Name: "a"}, c.err)
		if got != c.want || strings.Contains(got, secret) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
