package setup

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
)

// FieldOwner is the field manager of the controllers for their own kinds, and the reporting
// controller of their events.
const FieldOwner = "ksctl-gitops"

// DefaultConcurrent is the default of Options.Concurrent.
const DefaultConcurrent = 10

// Options configures the reconcilers of one manager. OwnerID, Namespace and StoragePath are
// required; all other fields have usable defaults.
type Options struct {
	// OwnerID identifies this installation among all installations on the same cluster,
	// including the controller that this project ships ("ksctl"). It is part of the mark of
	// each managed object: after a change of OwnerID, the objects are no longer managed.
	OwnerID string
	// Namespace is the namespace of the Secret with the key for hashes of secret content. The
	// Secret is created if it does not exist.
	Namespace string
	// StoragePath is a directory for fetched content. Only one process may use it.
	StoragePath string
	// DefaultServiceAccount is the service account of objects that specify none. If it is empty,
	// such objects are rejected.
	DefaultServiceAccount string
	// NoCrossNamespaceRefs rejects references to sources in other namespaces.
	NoCrossNamespaceRefs bool
	// Selector restricts the reconciled objects of all kinds except KsctlInstall; nil: all. The
	// cache of the manager restricts the KsctlInstalls.
	Selector labels.Selector
	// ArgoCDNamespaces are the namespaces in which cluster Secrets for Argo CD may be created.
	ArgoCDNamespaces []string
	// InsecureKubeConfigTLS allows kubeconfigs that do not verify the server certificate.
	InsecureKubeConfigTLS bool
	// ConfigCacheFiltered has to be true if the cache of the manager holds only a selection of the
	// ConfigMaps and Secrets. Others are then read from the API server at each reconcile.
	ConfigCacheFiltered bool
	// Concurrent is the maximum number of concurrent reconciles per kind; DefaultConcurrent if 0.
	Concurrent int
	// Jitter randomizes intervals by up to this percentage in both directions, so that the
	// reconciles of many objects spread over time.
	Jitter uint8

	// CheckLeadership returns an error while another process may be the leader and this one does
	// not know yet. Notifications to external systems are not sent then; requests to the API
	// server are. nil: this process is always the leader.
	CheckLeadership func() error

	// Events receives the events of objects; nil: events go to the API server.
	Events record.EventRecorder
	// Metrics registers the metrics of the controllers, for example controller-runtime's
	// metrics.Registry; nil: they are not registered.
	Metrics prometheus.Registerer

	// Render renders a stack; nil: stacks.Render in this process, which can't stop a render that
	// loops or uses too much memory. Requests and results can be serialized, so that another
	// process can render.
	Render func(context.Context, stacks.Request) (stacks.Result, error)
	// Decrypt decrypts files with SOPS encryption, for example with stacks/sops/codec; nil: such
	// files are rejected.
	Decrypt sops.Decrypter
	// Encrypt encrypts files with SOPS, for example with stacks/sops/codec; nil: nothing is
	// exported.
	Encrypt sops.Encrypter
	// RenderCacheBytes bounds the render cache in memory; ArtifactCacheBytes and ChartCacheBytes
	// bound the caches on disk.
	RenderCacheBytes, ArtifactCacheBytes, ChartCacheBytes int64
	// ArtifactLimits bounds each source and chart; ArtifactTimeout bounds one attempt to fetch it.
	ArtifactLimits  artifact.Limits
	ArtifactTimeout time.Duration
	// ChartIndexBytes is the maximum size of the index.yaml of a chart repository; ChartLimits
	// bounds each rendered chart.
	ChartIndexBytes int64
	ChartLimits     stacks.ChartLimits
	// CatalogURL is a catalog of stacks in addition to the shipped one, as
	// oci://registry/repository; CatalogInsecure allows plain http for it.
	CatalogURL      string
	CatalogInsecure bool
}

// ownerIDPattern matches ids that are valid both as a label value and as a part of an owner key.
var ownerIDPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// OwnerIDError reports an invalid owner id.
type OwnerIDError struct{ ID string }

func (e *OwnerIDError) Error() string {
	return fmt.Sprintf("owner id %q: must be 1 to 63 characters of a-z, 0-9, - and ., and begin and end with a "+
		"letter or digit", e.ID)
}

// ValidateOwnerID returns an *OwnerIDError if an id is invalid as Options.OwnerID.
func ValidateOwnerID(id string) error {
	if !ownerIDPattern.MatchString(id) {
		return &OwnerIDError{ID: id}
	}
	return nil
}

// validate returns an error if an option is invalid.
func (o *Options) validate() error {
	if err := ValidateOwnerID(o.OwnerID); err != nil {
		return err
	}
	switch {
	case o.Namespace == "":
		return errors.New("setup: Options.Namespace is empty: set the namespace of the program")
	case o.StoragePath == "":
		return errors.New("setup: Options.StoragePath is empty: set a directory for fetched content")
	case o.Concurrent < 0:
		return fmt.Errorf("setup: Options.Concurrent is %d: must be at least 1, or 0 for the default of %d",
			o.Concurrent, DefaultConcurrent)
	case o.Jitter >= 100:
		return fmt.Errorf("setup: Options.Jitter is %d percent: must be less than 100", o.Jitter)
	}
	return nil
}
