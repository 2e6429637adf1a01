package install

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/publish"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
)

func TestPublishErrorReason(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason string
		stays  bool
	}{
		"no error":              {nil, "", false},
		"Secrets":               {&publish.SecretsError{Rendered: []string{"a"}}, appsv1.SecretsRefusedReason, true},
		"another owner":         {&publish.OwnedError{}, appsv1.OwnedByAnotherReason, true},
		"no objects":            {publish.ErrEmpty, appsv1.EmptyRenderReason, true},
		"no artifact server":    {errNoArtifactServer, appsv1.PublishingDisabledReason, true},
		"kind is not served":    {&sourceref.Error{Reason: sourceref.NotServed}, "SourceKindNotServed", false},
		"storage is full":       {&storage.FullError{}, "StorageFull", false},
		"artifact is too large": {&artifact.Error{Reason: artifact.TooLarge}, "TooLarge", true},
		"disk error":            {&artifact.Error{Reason: artifact.Storage}, "StorageFailed", false},
		"other error":           {errors.New("403"), appsv1.PublishingFailedReason, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.err
			if err != nil {
				err = fmt.Errorf("in an attempt: %w", err)
			}
			if reason, terminal := publishErrorReason(err); reason != c.reason || terminal != c.stays {
				t.Errorf("got %q %v, want %q %v", reason, terminal, c.reason, c.stays)
			}
		})
	}
}

func TestValuesSecretNames(t *testing.T) {
	spec := &appsv1.KsctlInstallSpec{ValuesFrom: []appsv1.ValuesReference{{Kind: "ConfigMap", Name: "a"},
		{Kind: "Secret", Name: "b"}}}
	if got := valuesSecretNames(spec); len(got) != 1 || got[0] != "b" {
		t.Errorf("got %v", got)
	}
}
