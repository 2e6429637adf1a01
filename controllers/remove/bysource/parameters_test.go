package bysource

import (
	"errors"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// An error about parameters says where those belong that an install read from elsewhere.
func TestExplainParameters(t *testing.T) {
	required := &stacks.Error{Field: "spec.parameters", Message: `parameter "zone" is required`}
	other := &stacks.Error{Field: "spec.components", Message: "something else"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"one error": {required, true}, "several errors": {stacks.Errors{other, required}, true},
		"another error": {other, false}, "no stack error": {errors.New("no connection"), false},
	} {
		got := explainParameters(tc.err)
		if strings.Contains(got.Error(), "set in spec.parameters what the install had from parametersFrom") != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
		_, before := errors.AsType[*stacks.Error](tc.err)
		if _, after := errors.AsType[*stacks.Error](got); !strings.HasPrefix(got.Error(), tc.err.Error()) ||
			before != after {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
