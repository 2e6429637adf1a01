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

func TestWhyNothingIsPublished(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason string
		stays  bool
	}{
		"it is":           {nil, "", false},
		"Secrets":         {&publish.SecretsError{Rendered: []string{"a"}}, SecretsRefusedReason, true},
		"somebody else's": {&publish.OwnedError{}, OwnedReason, true},
		"nothing":         {publish.ErrEmpty, EmptyRenderReason, true},
		"no server":       {errNoServer, PublishingDisabledReason, true},
		"no such kind":    {&sourceref.Error{Reason: sourceref.NotServed}, "SourceKindNotServed", false},
		"no room":         {&storage.FullError{}, "StorageFull", false},
		"too large":       {&artifact.Error{Reason: artifact.TooLarge}, "TooLarge", true},
		"the disk":        {&artifact.Error{Reason: artifact.Storage}, "StorageFailed", false},
		"anything else":   {errors.New("403"), PublishingFailedReason, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.err
			if err != nil {
				err = fmt.Errorf("in an attempt: %w", err)
			}
			if reason, stays := notPublished(err); reason != c.reason || stays != c.stays {
				t.Errorf("got %q %v, want %q %v", reason, stays, c.reason, c.stays)
			}
		})
	}
}

func TestSecretsThatAreRead(t *testing.T) {
	spec := &appsv1.KsctlInstallSpec{ValuesFrom: []appsv1.ValuesReference{{Kind: "ConfigMap", Name: "a"}, {Kind: "Secret", Name: "b"}}}
	if got := secretsRead(spec); len(got) != 1 || got[0] != "b" {
		t.Errorf("got %v", got)
	}
}
